"""API keys over the wire: shown once, kept nowhere, and each workspace's own but for admins."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from chassis.context import CallContext, call_context
from chassis.errors import Reason
from drover.key.v1 import api_key_service_pb2 as pb
from drover.key.v1.api_key_service_pb2_grpc import ApiKeyServiceStub
from tests.doubles.request_keys import answered, named
from tests.integration.registry.refusal import refusal

if TYPE_CHECKING:
    from pathlib import Path

    import grpc.aio

    from drover.key.v1.api_key_pb2 import ApiKey

HOME = "wrkspc_default"
ELSEWHERE = CallContext(workspace_id="wrkspc_other")


@pytest.fixture
def keys(channel: grpc.aio.Channel) -> Any:
    return ApiKeyServiceStub(channel)


async def make(keys: Any, *scopes: str, **fields: Any) -> ApiKey:
    request = pb.CreateApiKeyRequest(scopes=scopes or ("write",), **fields)
    made: ApiKey = (await keys.CreateApiKey(request)).api_key
    return made


async def find(keys: Any, key: str) -> ApiKey:
    digest = hashlib.sha256(key.encode()).digest()
    found = await keys.AuthenticateApiKey(pb.AuthenticateApiKeyRequest(digest=digest))
    key_of: ApiKey = found.api_key
    return key_of


async def test_a_key_is_shown_when_it_is_made_and_never_again(keys: Any, tmp_path: Path) -> None:
    made = await make(keys, "sessions:write", "read", name="ci", requests_per_minute=60)
    key = made.key
    assert (key[:11], len(key)) == ("drover_api_", 11 + 43)
    assert (made.name, made.hint, made.workspace_id) == ("ci", key[-4:], HOME)
    assert (list(made.scopes), made.requests_per_minute) == (["sessions:write", "read"], 60)
    made.ClearField("key")
    assert (await keys.GetApiKey(pb.GetApiKeyRequest(api_key_id=made.id))).api_key == made
    assert list((await keys.ListApiKeys(pb.ListApiKeysRequest())).data) == [made]
    assert await find(keys, key) == made
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "registry.db" for file in files)
    secret = key.removeprefix("drover_api_").encode()
    assert [file for file in files if secret in file.read_bytes()] == []


async def test_a_repeated_creation_names_the_key_without_showing_it(keys: Any) -> None:
    request = pb.CreateApiKeyRequest(scopes=["read"])
    first, _ = await answered(keys.CreateApiKey, request, named("k"))
    again, replayed = await answered(keys.CreateApiKey, request, named("k"))
    assert first.api_key.HasField("key")
    first.api_key.ClearField("key")
    assert (again, replayed) == (first, True)


async def test_a_revoked_key_is_told_as_such_and_a_guess_as_nothing(keys: Any) -> None:
    made = await make(keys)
    ended = (await keys.RevokeApiKey(pb.RevokeApiKeyRequest(api_key_id=made.id))).api_key
    assert ended.HasField("revoked_at")
    assert await find(keys, made.key) == ended
    again = await keys.RevokeApiKey(pb.RevokeApiKeyRequest(api_key_id=made.id))
    assert again.api_key == ended
    assert list((await keys.ListApiKeys(pb.ListApiKeysRequest())).data) == []
    every = await keys.ListApiKeys(pb.ListApiKeysRequest(include_revoked=True))
    assert list(every.data) == [ended]
    error = await refusal(find(keys, f"{made.key}x"))
    assert error.reason is Reason.UNAUTHENTICATED


async def test_a_workspace_sees_its_own_keys_and_admins_all(keys: Any) -> None:
    ours = await make(keys)
    theirs = await make(keys, workspace_id="wrkspc_other", every_workspace=True)
    assert (await refusal(make(keys, workspace_id="wrkspc_other"))).rule.http == 403
    with call_context(ELSEWHERE):
        assert (await make(keys)).workspace_id == "wrkspc_other"
        for call, request in (
            (keys.GetApiKey, pb.GetApiKeyRequest),
            (keys.RevokeApiKey, pb.RevokeApiKeyRequest),
        ):
            unseen = await refusal(call(request(api_key_id=ours.id)))
            assert unseen.message == f"no API key {ours.id!r}"
            assert (await refusal(call(request(api_key_id="apikey_9")))).reason is unseen.reason
            seen = await call(request(api_key_id=ours.id, every_workspace=True))
            assert seen.api_key.id == ours.id
        assert len((await keys.ListApiKeys(pb.ListApiKeysRequest())).data) == 2
        of_others = pb.ListApiKeysRequest(workspace_id=HOME, include_revoked=True)
        assert list((await keys.ListApiKeys(of_others)).data) == []
        of_others.every_workspace = True
        assert [key.id for key in (await keys.ListApiKeys(of_others)).data] == [ours.id]
    every = pb.ListApiKeysRequest(every_workspace=True, limit=1)
    page = await keys.ListApiKeys(every)
    assert page.data[0].workspace_id == "wrkspc_other"
    every.page = page.next_page
    assert [key.id for key in (await keys.ListApiKeys(every)).data] == [theirs.id]
    everywhere = await refusal(keys.ListApiKeys(pb.ListApiKeysRequest(page=page.next_page)))
    assert everywhere.message == "page: not a cursor of this list"


async def test_what_a_key_cannot_be_is_refused_by_the_fields_name(keys: Any) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    for fields, path in (
        ({"scopes": []}, "scopes: "),
        ({"scopes": ["read", "read"]}, "scopes"),
        ({"scopes": ["read", "sessions"]}, "scopes.1: "),
        ({"scopes": ["read", "sessions:admin"]}, "scopes.1: "),
        ({"scopes": ["read\n"]}, "scopes.0: "),
        ({"scopes": ["read"], "workspace_id": "other"}, "workspace_id: "),
        ({"scopes": ["read"], "workspace_id": f"wrkspc_{'x' * 65}"}, "workspace_id: "),
        ({"scopes": ["read"], "workspace_id": "wrkspc_x\n"}, "workspace_id: "),
        ({"scopes": ["read"], "name": ""}, "name: "),
        ({"scopes": ["read"], "requests_per_minute": 0}, "requests_per_minute: "),
        ({"scopes": ["read"], "expires_at": Timestamp(seconds=10**12)}, "expires_at: is no time"),
        ({"scopes": ["read"], "expires_at": Timestamp(nanos=-1)}, "expires_at: is no time"),
        ({"scopes": ["read"], "expires_at": past}, "expires_at: must be in the future"),
    ):
        request = pb.CreateApiKeyRequest(**fields)  # type: ignore[arg-type]
        error = await refusal(keys.CreateApiKey(request))
        assert error.reason is Reason.INVALID_ARGUMENT
        assert error.message.startswith(path), error.message
