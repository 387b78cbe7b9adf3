"""A1: no route and no RPC shows or changes anything of another workspace, or says that it is there.

Ada's workspace has one of everything, and so has Bob's. Every request is made for Bob, right in
all else, with an id of Ada's in one place, or in all, and again with ids of nothing: the answers
are the same. Every row of Ada's stays as it was, in every database, and in the end every request is
shown to have been right.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import httpx2
import pytest

from drover.api.v1.annotations_pb2 import KEY_KIND_API
from drover.session.v1.session_service_pb2 import ExportSessionRequest, ImportSessionRequest
from tests.adversarial.tenancy import picture
from tests.adversarial.tenancy.asking import NEW, Ask, Ids, masked, methods
from tests.adversarial.tenancy.requests import (
    AGENT,
    BROUGHT,
    FOUND,
    HANDS,
    INTERNAL,
    OF_NO_WORKSPACE,
    OTHERWISE,
    PRIVATE,
    PUBLIC,
    QUEUES,
    QUIET,
)
from tests.adversarial.tenancy.web import Web, routes
from tests.adversarial.tenancy.world import invented
from tests.e2e.stack import BETA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.transcode.routes import Route
    from tests.adversarial.tenancy.conftest import Tenants

STATUSES: Final = {
    "OK": "200",
    "INVALID_ARGUMENT": "400",
    "PERMISSION_DENIED": "403",
    "NOT_FOUND": "404",
}
ENDS: Final = ("Archive", "Delete", "Forget", "HandOver", "Redact", "Release", "Revoke", "Stop")


HERS: Final = (
    Ask("FileService.DownloadFile", at={"file_id": "output_id"}),
    Ask("FileService.ReadFile", {"fileId": "{file_id}"}),
    Ask("SkillVersionService.DownloadSkillVersion"),
)
"""What has bytes elsewhere than in a database."""


@pytest.fixture(scope="module")
def web(tenants: Tenants) -> Iterator[Web]:
    with httpx2.Client(base_url=tenants.bob.stack.url, timeout=30) as http:
        yield Web(http)


def told_apart(tenants: Tenants, ask: Ask) -> Iterator[tuple[list[str], Ids, Ids]]:
    """Each way to name something of Ada's among Bob's own, and the same with what is not there."""
    ada, bob = tenants.ada.ids, tenants.bob.ids
    ways = [[name] for name in ask.names]
    for names in [*ways, ask.names] if len(ways) > 1 else ways:
        hers, nobodys = (bob | {NEW: invented(ada[NEW])} for _ in range(2))
        hers.update((name, ada[name]) for name in names)
        nobodys.update((name, invented(ada[name])) for name in names)
        yield names, hers, nobodys


def expected(ask: Ask, names: list[str]) -> str:
    otherwise = OTHERWISE.get((ask.method, names[0])) if len(names) == 1 else None
    if otherwise is not None:
        return otherwise
    says_so = set(names).isdisjoint(ask.in_path) or ask.method in QUEUES
    return "OK" if ask.method in QUIET and says_so else "NOT_FOUND"


def takes_api_keys(route: Route) -> bool:
    return not route.rules.keys or KEY_KIND_API in route.rules.keys


def destruction(ask: Ask) -> tuple[bool, int, bool]:
    """What takes something away comes behind what does not, and parts come before the whole."""
    name = ask.method.partition(".")[2]
    return name.startswith(ENDS), -len(ask.names), name.startswith("Delete")


def lines(wrong: list[Any]) -> str:
    return "\n".join(map(str, wrong))


@contextmanager
def nothing_of_hers_changes(tenants: Tenants) -> Iterator[None]:
    """No row that says anything of Ada's is lost, and none comes about but for Bob."""
    ada, bob = tenants.ada, tenants.bob
    words = [ada.workspace, *ada.ids.values()]
    seen = [picture.taken(ada.stack.data, words)]

    def rests() -> bool:
        seen.append(picture.taken(ada.stack.data, words))
        return seen[-1] == seen[-2]

    ada.stack.wait_for(rests, "rest")
    yield
    for stored in HERS:
        assert ada.services.ask(ada.workspace, stored, ada.ids).status == "OK"
    after = picture.taken(ada.stack.data, words)
    assert seen[-1] - after == {}
    assert [row for row in after - seen[-1] if bob.workspace not in row] == []


@contextmanager
def in_use(tenants: Tenants, web: Web) -> Iterator[None]:
    """While she reads all that is hers, and goes on with her session's stream."""
    ada = tenants.ada
    for ask in PUBLIC:
        route = ask.route
        if route is not None and route.verb == "GET" and takes_api_keys(route):
            shown = web.ask(ada.keys["api"], ask, route, ada.ids)
            assert shown.status == ("403" if route.rules.admin else "200"), (ask, shown)
    headers = {"x-api-key": ada.keys["api"], "anthropic-beta": BETA}
    path = f"/v1/sessions/{ada.ids['session_id']}/events/stream"
    with web.http.stream("GET", path, headers=headers) as stream:
        assert stream.status_code == httpx2.codes.OK
        yield


def test_every_method_that_names_anything_is_asked() -> None:
    asked = {ask.method for ask in (*PUBLIC, *INTERNAL, *HANDS)}
    assert asked | OF_NO_WORKSPACE.keys() == methods().keys()
    assert not asked & OF_NO_WORKSPACE.keys()
    assert {ask.method for ask in PUBLIC} == routes().keys()


def test_lists_show_nothing_of_another_workspace(tenants: Tenants, web: Web) -> None:
    bob, hers = tenants.bob, tenants.ada.ids.values()
    seen: list[Any] = []
    for ask in PUBLIC:
        if not ask.method.partition(".")[2].startswith("List"):
            continue
        told = bob.services.ask(bob.workspace, ask, bob.ids)
        assert told.status == "OK", (ask, told)
        (route,) = routes()[ask.method]
        key = bob.keys["api" if takes_api_keys(route) else "environment"]
        shown = web.ask(key, ask, route, bob.ids)
        assert shown.status == ("403" if route.rules.admin else "200"), (ask, shown)
        seen += [(ask.method, one) for one in hers if one in told.text or one in shown.text]
    assert not seen, lines(seen)


def test_a_page_of_one_workspaces_list_is_none_of_anothers(tenants: Tenants) -> None:
    ada, bob = tenants.ada, tenants.bob
    continued: list[str] = []
    wrong: list[Any] = []
    for ask in PUBLIC:
        if ask.route is None or ask.query or "page" not in ask.route.request.query:
            continue
        first = Ask(ask.method, query="limit=1", at=ask.at)
        page = ada.services.ask(ada.workspace, first, ada.ids).message.next_page
        if not page:
            continue
        continued.append(ask.method)
        again = Ask(ask.method, query=f"limit=1&page={page}", at=ask.at)
        told = bob.services.ask(bob.workspace, again, bob.ids)
        if told.status != "INVALID_ARGUMENT":
            wrong.append((ask.method, told))
    assert not wrong, lines(wrong)
    assert len(continued) > 15, continued


def test_naming_a_workspace_opens_none(tenants: Tenants, web: Web) -> None:
    ada, key = tenants.ada, tenants.bob.keys["api"]
    wrong: list[Any] = []
    for ask in PUBLIC:
        for route in routes()[ask.method]:
            if route.verb != "GET" or route.rules.admin or not takes_api_keys(route) or ask.query:
                continue
            named, inside = (
                web.ask(key, ask, route, ada.ids, **{header: ada.workspace}).status
                for header in ("anthropic-workspace-id", "x-drover-workspace-id")
            )
            if (named, inside) != ("403", "404" if ask.names else "200"):
                wrong.append((ask.method, named, inside))
    assert not wrong, lines(wrong)


def test_a_repeated_request_of_anothers_is_a_new_one(tenants: Tenants, web: Web) -> None:
    ask = Ask("AgentService.CreateAgent", AGENT)
    (route,) = routes()[ask.method]
    once = {"idempotency-key": "once"}
    answers = [
        web.ask(tenant.keys["api"], ask, route, {}, **once).text
        for tenant in (tenants.ada, tenants.ada, tenants.bob)
    ]
    made = [json.loads(answer)["id"] for answer in answers]
    assert made[0] == made[1] != made[2]


def test_no_route_tells_what_is_anothers_from_what_is_not_there(tenants: Tenants, web: Web) -> None:
    wrong: list[Any] = []

    def check(ask: Ask, route: Route, kind: str, key: str) -> None:
        for names, hers, nobodys in told_apart(tenants, ask):
            right = {STATUSES[expected(ask, names)]}
            if kind != "api" or route.rules.admin or not takes_api_keys(route):
                right = {"403", "404"}
            told, wanted = (web.ask(key, ask, route, ids) for ids in (hers, nobodys))
            if told != wanted or told.status not in right:
                wrong.append((kind, ask.method, names, told, wanted))

    with nothing_of_hers_changes(tenants), in_use(tenants, web):
        for ask in PUBLIC:
            for route in routes()[ask.method]:
                check(ask, route, "api", tenants.bob.keys["api"])
                if route.rules.keys:
                    for kind in ("environment", "work"):
                        check(ask, route, kind, tenants.bob.keys[kind])
    assert not wrong, lines(wrong)


def test_no_rpc_tells_what_is_anothers_from_what_is_not_there(tenants: Tenants) -> None:
    ada, bob = tenants.ada, tenants.bob
    wrong: list[Any] = []
    with nothing_of_hers_changes(tenants):
        for ask in (*PUBLIC, *INTERNAL):
            for names, hers, nobodys in told_apart(tenants, ask):
                told, wanted = (
                    bob.services.ask(bob.workspace, ask, ids) for ids in (hers, nobodys)
                )
                if told != wanted or told.status != expected(ask, names):
                    wrong.append((ask.method, names, told, wanted))
    assert not wrong, lines(wrong)
    # Her grant opens what it did.
    fetch = Ask("CredentialProxyService.Fetch", {"grant": "{grant}", "url": "x", "callId": "c"})
    assert ada.services.ask(ada.workspace, fetch, ada.ids).status == "OK"


@pytest.mark.parametrize(
    "method",
    [
        "AgentService.GetAgent",
        "FileService.GetFile",
        "MemoryService.GetMemory",
        "SessionService.GetSession",
        "VaultService.GetVault",
    ],
)
def test_a_refusal_takes_no_longer_for_what_is_there(tenants: Tenants, method: str) -> None:
    bob, ask = tenants.bob, Ask(method)
    *_, (_, hers, nobodys) = told_apart(tenants, ask)
    took: list[list[float]] = [[], []]
    for _ in range(50):
        for times, ids in zip(took, (hers, nobodys), strict=True):
            begun = time.perf_counter()
            bob.services.ask(bob.workspace, ask, ids)
            times.append(time.perf_counter() - begun)
    there, nowhere = map(median, took)
    assert there == pytest.approx(nowhere, rel=0.5)


def test_no_hands_serve_another_workspaces_session_whatever_the_lease(tenants: Tenants) -> None:
    ada, bob = tenants.ada, tenants.bob
    wrong: list[Any] = []
    with nothing_of_hers_changes(tenants):
        for ask in HANDS:
            for names, hers, _ in told_apart(tenants, ask):
                told = bob.services.ask(bob.workspace, ask, hers)
                if told.status != expected(ask, names):
                    wrong.append((ask.method, names, told))
    assert not wrong, lines(wrong)
    said = ada.turn("cat /mnt/session/outputs/made.txt; ls forged")
    assert said.startswith("made\n")
    assert "No such file" in said


def test_no_hands_bring_what_is_another_workspaces(tenants: Tenants) -> None:
    bob = tenants.bob
    wrong: list[Any] = []

    def seen(ask: Ask, ids: Ids) -> str:
        told = bob.services.ask(bob.workspace, ask, ids | {NEW: invented(ids[NEW])})
        assert told.status == "OK", told
        told.message.ClearField("duration")
        return masked(str(told.message), ids)

    for ask in BROUGHT:
        for name in ask.names:
            if name != "farm_session_id":
                hers, nobodys = (
                    bob.ids | {name: one}
                    for one in (tenants.ada.ids[name], invented(bob.ids[name]))
                )
                told, wanted = seen(ask, hers), seen(ask, nobodys)
                if told != wanted or PRIVATE in told:
                    wrong.append((name, told, wanted))
    assert not wrong, lines(wrong)
    for ask in BROUGHT[1:]:  # a file would have to be the session's own copy
        assert PRIVATE in seen(ask, bob.ids), ask
    bob.let_go()


def test_no_session_takes_the_place_of_another_workspaces(tenants: Tenants) -> None:
    ada, bob = tenants.ada, tenants.bob
    asked = iter([ExportSessionRequest(session_id=ada.ids["session_id"])])
    call = ada.services.call
    status, told = call(ada.workspace, "SessionService.ExportSession", asked, most=1_000)
    assert status == "OK"
    with nothing_of_hers_changes(tenants):
        sent = (ImportSessionRequest(records=one.records) for one in told)
        status, why = call(bob.workspace, "SessionService.ImportSession", sent)
    assert (status, why.partition(":")[0]) == ("ABORTED", "CONFLICT")


def test_every_request_is_right_but_for_whose_it_is(tenants: Tenants) -> None:
    """The last of all: of Bob's own there is nothing left."""
    bob = tenants.bob
    wrong: list[Any] = []
    for ask in sorted((*PUBLIC, *INTERNAL, *HANDS), key=destruction):
        if ask.route is not None and ask.route.kind.name == "EVENTS":
            continue  # it waits for what happens next
        if "grant" in ask.names:
            bob.open_grant()
        told = bob.services.ask(bob.workspace, ask, bob.ids)
        statuses, said = FOUND.get(ask.method, ("OK", ""))
        if told.status not in statuses.split() or said not in told.text:
            wrong.append((ask.method, told))
    assert not wrong, lines(wrong)
