"""Environments' keys over the wire: shown once, and kept nowhere."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from chassis.context import CallContext, call_context
from chassis.errors import Reason
from drover.environment.v1 import environment_key_service_pb2 as pb
from drover.environment.v1.environment_key_service_pb2_grpc import EnvironmentKeyServiceStub
from drover.environment.v1.environment_pb2 import EnvironmentConfig, SelfHostedConfig
from tests.doubles.request_keys import answered, named
from tests.integration.registry.refusal import refusal
from tests.integration.registry.test_environment_service import create

if TYPE_CHECKING:
    from pathlib import Path

    import grpc.aio

    from drover.environment.v1.environment_key_pb2 import EnvironmentKey

HOSTED = EnvironmentConfig(self_hosted=SelfHostedConfig())


@pytest.fixture
def keys(channel: grpc.aio.Channel) -> Any:
    return EnvironmentKeyServiceStub(channel)


@pytest.fixture
async def home(environments: Any) -> str:
    return (await create(environments, config=HOSTED)).id


async def make(keys: Any, environment_id: str, **fields: Any) -> EnvironmentKey:
    request = pb.CreateEnvironmentKeyRequest(environment_id=environment_id, **fields)
    return (await keys.CreateEnvironmentKey(request)).environment_key


def whose(key: str) -> pb.AuthenticateEnvironmentKeyRequest:
    return pb.AuthenticateEnvironmentKeyRequest(digest=hashlib.sha256(key.encode()).digest())


async def test_a_key_is_shown_when_it_is_made_and_never_again(keys: Any, home: str) -> None:
    made = await make(keys, home, name="build farm")
    assert made.key.startswith("drover_env_")
    assert len(made.key) == len("drover_env_") + 43
    assert (made.name, made.hint) == ("build farm", made.key[-4:])
    listed = await keys.ListEnvironmentKeys(pb.ListEnvironmentKeysRequest(environment_id=home))
    made.ClearField("key")
    assert list(listed.data) == [made]


async def test_no_file_of_the_database_holds_a_key(keys: Any, home: str, tmp_path: Path) -> None:
    key = (await make(keys, home)).key
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "registry.db" for file in files)
    secret = key.removeprefix("drover_env_").encode()
    assert [file for file in files if secret in file.read_bytes()] == []


async def test_a_repeated_creation_names_the_key_without_showing_it(keys: Any, home: str) -> None:
    request = pb.CreateEnvironmentKeyRequest(environment_id=home)
    first, _ = await answered(keys.CreateEnvironmentKey, request, named("k"))
    again, replayed = await answered(keys.CreateEnvironmentKey, request, named("k"))
    assert first.environment_key.HasField("key")
    first.environment_key.ClearField("key")
    assert (again, replayed) == (first, True)


async def test_a_digest_opens_its_environment_until_the_key_is_revoked(
    keys: Any, home: str
) -> None:
    made = await make(keys, home)
    with call_context(CallContext(workspace_id="wrkspc_other")):
        holder = await keys.AuthenticateEnvironmentKey(whose(made.key))
    assert (holder.workspace_id, holder.environment_id) == ("wrkspc_default", home)
    assert holder.key_id == made.id
    revocation = pb.RevokeEnvironmentKeyRequest(environment_id=home, key_id=made.id)
    assert (await keys.RevokeEnvironmentKey(revocation)).environment_key.HasField("revoked_at")
    error = await refusal(keys.AuthenticateEnvironmentKey(whose(made.key)))
    assert error.reason is Reason.UNAUTHENTICATED


async def test_environments_without_workers_and_unknown_ones_get_no_key(
    keys: Any, environments: Any
) -> None:
    cloud = (await create(environments)).id
    error = await refusal(make(keys, cloud))
    assert (error.rule.http, error.message[:16]) == (400, "environment_id: ")
    unknown = await refusal(make(keys, "env_nowhere"))
    assert (unknown.rule.http, unknown.error_code) == (404, "environment_not_found")
    named_badly = await refusal(make(keys, cloud, name=""))
    assert named_badly.message.startswith("name: ")
