from __future__ import annotations

import hashlib
import re
import stat
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from chassis.context import DEFAULT_WORKSPACE
from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from drover.api.v1.annotations_pb2 import (
    KEY_KIND_API,
    KEY_KIND_ENVIRONMENT,
    KEY_KIND_UNSPECIFIED,
    KEY_KIND_WORK_ITEM,
)
from gateway.auth import ApiKeys, Caller, HostNames, Token, check_workspace, key_file

SECRET = Secret("of the installation")
KEYS = ApiKeys(["first", "second"], SECRET)


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": "first"},
        {"x-api-key": "second"},
        {"authorization": "Bearer first"},
        {"authorization": "bearer  second"},
        {"x-api-key": "wrong", "authorization": "Bearer first"},
        {"x-api-key": "first", "anthropic-workspace-id": "wrkspc_default"},
    ],
)
def test_a_key_is_taken_from_either_header(headers: dict[str, str]) -> None:
    caller = KEYS.caller(Headers(headers))
    assert isinstance(caller, Caller)
    assert (caller.workspace_id, caller.kind) == ("wrkspc_default", KEY_KIND_API)


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"authorization": "Bearer drover_env_abc"}, KEY_KIND_ENVIRONMENT),
        ({"x-api-key": "drover_env_abc"}, KEY_KIND_ENVIRONMENT),
        ({"authorization": "bearer drover_work_abc"}, KEY_KIND_WORK_ITEM),
        ({"x-api-key": "first", "authorization": "Bearer drover_work_abc"}, KEY_KIND_WORK_ITEM),
        ({"x-api-key": "wrong", "authorization": "Bearer drover_env_abc"}, KEY_KIND_ENVIRONMENT),
        (
            {"x-api-key": "drover_env_abc", "authorization": "Bearer drover_env_abc"},
            KEY_KIND_ENVIRONMENT,
        ),
    ],
)
def test_a_workers_token_is_told_by_how_it_begins(headers: dict[str, str], kind: int) -> None:
    token = KEYS.caller(Headers(headers))
    assert isinstance(token, Token)
    assert token.kind == kind
    shown = max(headers.values(), key=lambda value: "drover_" in value).split()[-1]
    assert token.digest == hashlib.sha256(shown.encode()).digest()
    assert "abc" not in repr(token)


def test_two_workers_tokens_at_once_are_none() -> None:
    headers = {"x-api-key": "drover_env_abc", "authorization": "Bearer drover_work_abc"}
    with pytest.raises(DroverError, match="two different keys") as refused:
        KEYS.caller(Headers(headers))
    assert refused.value.reason is Reason.UNAUTHENTICATED


def test_an_api_key_that_begins_like_a_workers_token_is_an_api_key() -> None:
    keys = ApiKeys(["drover_env_chosen"], SECRET)
    assert isinstance(keys.caller(Headers({"x-api-key": "drover_env_chosen"})), Caller)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-api-key": ""},
        {"authorization": "Basic first"},
        {"authorization": "first"},
        {"authorization": "Bearer"},
    ],
)
def test_without_a_key_nobody_calls(headers: dict[str, str]) -> None:
    with pytest.raises(DroverError) as refused:
        KEYS.caller(Headers(headers))
    assert refused.value.reason is Reason.UNAUTHENTICATED
    assert "first" not in refused.value.message


@pytest.mark.parametrize("shown", ["firs", "first ", "fïrst", "drover_", "Drover_api_abc"])
def test_what_looks_like_no_kind_of_key_is_nobodys(shown: str) -> None:
    who = KEYS.caller(Headers({"x-api-key": shown}))
    assert isinstance(who, Token)
    assert who.kind == KEY_KIND_UNSPECIFIED


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": "drover_api_abc"},
        {"authorization": "Bearer drover_api_abc"},
        {"x-api-key": "wrong", "authorization": "Bearer drover_api_abc"},
        {"x-api-key": "drover_api_abc", "authorization": "Bearer drover_api_abc"},
    ],
)
def test_a_stored_key_is_told_by_how_it_begins(headers: dict[str, str]) -> None:
    digest = hashlib.sha256(b"drover_api_abc").digest()
    assert KEYS.caller(Headers(headers)) == Token(KEY_KIND_API, digest)


def test_the_gateways_own_key_goes_before_a_stored_one_and_a_workers_token_before_both() -> None:
    shown = {"x-api-key": "drover_api_abc", "authorization": "Bearer first"}
    assert isinstance(KEYS.caller(Headers(shown)), Caller)
    shown["authorization"] = "Bearer drover_work_abc"
    who = KEYS.caller(Headers(shown))
    assert isinstance(who, Token)
    assert who.kind == KEY_KIND_WORK_ITEM


def test_two_stored_keys_at_once_are_none() -> None:
    headers = {"x-api-key": "drover_api_abc", "authorization": "Bearer drover_api_abd"}
    with pytest.raises(DroverError, match="two different keys"):
        KEYS.caller(Headers(headers))


def test_a_key_does_not_open_another_workspace() -> None:
    headers = Headers({"x-api-key": "first", "anthropic-workspace-id": "wrkspc_other"})
    with pytest.raises(DroverError) as refused:
        check_workspace(headers, DEFAULT_WORKSPACE)
    assert refused.value.reason is Reason.PERMISSION_DENIED


def test_a_gateway_without_any_key_does_not_start() -> None:
    with pytest.raises(ValueError, match="no API key"):
        ApiKeys([""], SECRET)


def test_a_missing_key_file_is_made_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "run" / "api_key"
    made = key_file(path)
    assert len(made) == 1
    assert len(made[0]) > 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_file(path) == made
    assert list(path.parent.iterdir()) == [path]


def test_a_key_file_may_hold_several_keys(tmp_path: Path) -> None:
    path = tmp_path / "api_key"
    path.write_text("one\ntwo\n")
    assert key_file(path) == ["one", "two"]


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:1",
        "[::1]:9",
        "[::1]",
        "drover.lan",
        "drover.lan.:80",
    ],
)
def test_names_of_this_server_are_answered(host: str) -> None:
    HostNames("0.0.0.0:8080", ["Drover.lan"]).check(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "0.0.0.0:8080",
        "x:y",
        "localhost, localhost",
    ],
)
def test_names_that_a_rebound_page_would_bring_are_refused(host: str) -> None:
    with pytest.raises(DroverError) as refused:
        HostNames("0.0.0.0:8080", []).check(host)
    assert refused.value.reason is Reason.PERMISSION_DENIED


def test_an_address_that_is_listened_on_by_name_is_a_name() -> None:
    HostNames("10.0.0.7:80", []).check("10.0.0.7:80")


def id_of_first(secret: Secret) -> str:
    caller = ApiKeys(["other", "first"], secret).caller(Headers({"x-api-key": "first"}))
    assert isinstance(caller, Caller)
    assert (caller.worker, caller.api_key) == ("", caller.key_id)
    return caller.key_id


def test_a_key_has_one_id_in_an_installation_by_which_nobody_else_can_guess_it() -> None:
    told = id_of_first(SECRET)
    assert re.fullmatch("apikey_[0-9a-f]{24}", told)
    assert told == id_of_first(Secret("of the installation")) != id_of_first(Secret("of another"))
    assert hashlib.sha256(b"first").hexdigest()[:24] not in told
