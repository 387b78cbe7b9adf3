from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from services.engine_proxy.domain.calls import CALLS, Kind, find


@pytest.mark.parametrize(
    ("asked", "kind", "path", "named"),
    [
        ("GET /_ping", Kind.PLAIN, "/_ping", ""),
        ("GET /v1.41/info", Kind.INFO, "/info", ""),
        ("POST /v1.41/containers/create?name=drover-hand_1", Kind.CREATE, "/containers/create", ""),
        ("GET /v1.41/containers/json?all=1&limit=-1", Kind.CONTAINERS, "/containers/json", ""),
        ("GET /containers/abc/json", Kind.CONTAINER, "/containers/abc/json", "abc"),
        ("GET /containers/json/json", Kind.CONTAINER, "/containers/json/json", "json"),
        ("GET /images/team/box:3/json", Kind.IMAGE, "/images/team/box:3/json", "team/box:3"),
        ("GET /images/a%2Fb%3A1/json", Kind.IMAGE, "/images/a/b:1/json", "a/b:1"),
        ("GET /volumes/hands", Kind.VOLUME, "/volumes/hands", "hands"),
        ("DELETE /containers/abc?v=True&link=False&force=True", Kind.CONTAINER, "", "abc"),
    ],
)
def test_what_a_sandbox_needs_is_in_the_table(
    asked: str, kind: Kind, path: str, named: str
) -> None:
    found = find(*asked.split(" "), b"")
    assert (found.call.kind, found.named) == (kind, named)
    assert found.path == (path or "/containers/abc")


@pytest.mark.parametrize(
    "asked",
    [
        "POST /build",
        "POST /images/create?fromImage=x",
        "POST /images/load",
        "POST /images/x/push",
        "POST /images/x/tag?repo=drover/sandbox",
        "GET /images/get",
        "POST /containers/abc/exec",
        "POST /exec/abc/start",
        "PUT /containers/abc/archive?path=/",
        "GET /containers/abc/archive?path=/",
        "GET /containers/abc/export",
        "GET /containers/abc/logs?stdout=1",
        "POST /containers/abc/update",
        "POST /containers/abc/rename?name=x",
        "POST /containers/abc/restart",
        "GET /containers/abc/attach/ws",
        "POST /containers/prune",
        "GET /volumes",
        "POST /volumes/create",
        "DELETE /volumes/hands",
        "GET /networks",
        "POST /networks/create",
        "POST /networks/x/connect",
        "POST /plugins/pull?remote=x",
        "POST /swarm/init",
        "GET /secrets",
        "GET /system/df",
        "POST /session",
        "POST /grpc",
        "POST /auth",
        "HEAD /_ping",
        "OPTIONS /info",
        "CONNECT /info",
        "get /info",
    ],
)
def test_what_no_sandbox_needs_is_refused(asked: str) -> None:
    with pytest.raises(DroverError, match="is nothing that a sandbox needs") as refused:
        find(*asked.split(" "), b"")
    assert refused.value.reason is Reason.PERMISSION_DENIED


@pytest.mark.parametrize(
    "path",
    [
        "/containers/../containers/json",
        "/containers/%2e%2e/json",
        "/containers/abc/../../networks",
        "/containers/abc%2f..%2f..%2fnetworks/json",
        "/containers/abc/json/",
        "//containers/json",
        "/./info",
        "/v1.41//info",
        "/v1.41/v1.41/info",
        "/v1.41/../info",
        "/v1.41",
        "/V1.41/info",
        "/v1.41%2Finfo%00",
        "/info%00",
        "/info%0a",
        "/info\n",
        "/info;x",
        "/info#x",
        "/containers/abc%20/json",
        "/containers/-abc/json",
        "/images/../containers/json",
        "/images/a/../b/json",
        "/images/a//b/json",
        "/images/./json",
        "/images//json",
        "/images/a%252fb/json",
        "http://engine/info",
        "http://engine/containers/json",
        "engine:80",
        "*",
        "",
        "/INFO",
    ],
)
def test_paths_of_other_forms_lead_nowhere(path: str) -> None:
    with pytest.raises(DroverError):
        find("GET", path, b"")


@pytest.mark.parametrize(
    "query",
    [
        "name=drover-x&name=other",
        "name=other",
        "name=drover-x&platform=linux",
        "name=drover-x&fromSrc=-",
        "name=drover-%0ax",
        "name=drover-x%00",
        "name",
        "name=drover-x;platform=linux",
        "&&",
        "name=%ff",
    ],
)
def test_words_that_are_not_in_the_table_are_refused(query: str) -> None:
    with pytest.raises(DroverError):
        find("POST", f"/containers/create?{query}", b"{}")


def test_nothing_but_containers_and_images_has_a_body() -> None:
    """Old engines took a whole configuration of the host with the start of a container."""
    assert [call.kind for call in CALLS if call.has_body] == [Kind.CREATE, Kind.COMMIT]
    with pytest.raises(DroverError, match="which has none"):
        find("POST", "/v1.23/containers/abc/start", b'{"Privileged": true}')
