from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from chassis.context import CallContext, call_context
from chassis.errors import Reason
from drover.environment.v1 import environment_service_pb2 as pb
from drover.environment.v1.environment_pb2 import (
    ENVIRONMENT_SCOPE_ORGANIZATION,
    CloudConfig,
    Environment,
    EnvironmentConfig,
    LimitedNetwork,
    Networking,
    Packages,
    SelfHostedConfig,
)
from tests.integration.registry.refusal import refusal


def limited(*hosts: str, **switches: bool) -> EnvironmentConfig:
    network = Networking(limited=LimitedNetwork(allowed_hosts=hosts, **switches))
    return EnvironmentConfig(cloud=CloudConfig(networking=network))


def packaged(**packages: Any) -> EnvironmentConfig:
    return EnvironmentConfig(cloud=CloudConfig(packages=Packages(**packages)))


async def create(environments: Any, name: str = "data", **fields: Any) -> Environment:
    request = pb.CreateEnvironmentRequest(name=name, **fields)
    return (await environments.CreateEnvironment(request)).environment


async def update(environments: Any, stored: Environment, *mask: str, **fields: Any) -> Environment:
    paths = FieldMask(paths=mask) if mask else None
    request = pb.UpdateEnvironmentRequest(environment_id=stored.id, update_mask=paths, **fields)
    return (await environments.UpdateEnvironment(request)).environment


async def read(environments: Any, environment_id: str) -> Environment:
    request = pb.GetEnvironmentRequest(environment_id=environment_id)
    return (await environments.GetEnvironment(request)).environment


async def test_created_environment_is_read_back_with_its_full_config(environments: Any) -> None:
    created = await create(environments, description="d", metadata={"k": "v"})
    assert await read(environments, created.id) == created
    assert created.id.startswith("env_01")
    assert created.scope == ENVIRONMENT_SCOPE_ORGANIZATION
    assert created.config.cloud.networking.HasField("unrestricted")
    assert created.config.cloud.HasField("packages")


async def test_a_name_is_unique_among_those_not_archived(environments: Any) -> None:
    first = await create(environments)
    error = await refusal(create(environments))
    assert (error.reason, error.rule.http) == (Reason.ALREADY_EXISTS, 409)
    other = await create(environments, "web")
    assert (await refusal(update(environments, other, name="data"))).rule.http == 409
    with call_context(CallContext(workspace_id="wrkspc_other")):
        await create(environments)
    await environments.ArchiveEnvironment(pb.ArchiveEnvironmentRequest(environment_id=first.id))
    assert (await update(environments, other, name="data")).name == "data"


async def test_of_many_creates_under_one_name_exactly_one_wins(environments: Any) -> None:
    calls = (create(environments) for _ in range(8))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(one, Environment) for one in results) == 1


async def test_unknown_and_foreign_environments_have_their_error_code(environments: Any) -> None:
    stored = await create(environments)
    with call_context(CallContext(workspace_id="wrkspc_other")):
        errors = [await refusal(read(environments, stored.id))]
    gone = Environment(id="env_none")
    errors += [
        await refusal(read(environments, "env_none")),
        await refusal(update(environments, gone, name="x")),
        await refusal(
            environments.ArchiveEnvironment(pb.ArchiveEnvironmentRequest(environment_id="env_none"))
        ),
        await refusal(
            environments.DeleteEnvironment(pb.DeleteEnvironmentRequest(environment_id="env_none"))
        ),
    ]
    for error in errors:
        assert (error.rule.http, error.error_code) == (404, "environment_not_found")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": ""}, "name: "),
        ({"name": "x" * 257}, "name: "),
        ({"description": "x" * 2049}, "description: "),
        ({"config": EnvironmentConfig()}, "config.type: "),
        ({"config": EnvironmentConfig(cloud={"networking": {}})}, "config.networking.type: "),
        (
            {
                "config": EnvironmentConfig(self_hosted=SelfHostedConfig()),
                "metadata": {"drover.sandbox": "docker"},
            },
            "metadata.drover.sandbox: ",
        ),
        ({"metadata": {"drover.memory_mib": "1"}}, "metadata.drover.memory_mib: must be a whole"),
        ({"config": limited("ok.example", "*.com")}, "config.networking.allowed_hosts.1: "),
        ({"config": limited("10.0.0.1")}, "config.networking.allowed_hosts.0: "),
        ({"config": packaged(pip=["--index-url=evil"])}, "config.packages.pip.0: "),
        ({"config": packaged(apt=["git", ""])}, "config.packages.apt.1: "),
        ({"config": packaged(npm=["a\nb"])}, "config.packages.npm.0: "),
        ({"config": packaged(pip=["numpy", "git+https://x.example/y"])}, "config.packages.pip.1: "),
        ({"config": packaged(gem=["rake --source=x"])}, "config.packages.gem.0: "),
        ({"metadata": {"": "v"}}, "metadata"),
        ({"scope": 2}, "scope: "),
        ({"scope": 7}, "scope: "),
    ],
)
async def test_bad_environments_are_refused_by_path_and_nothing_is_stored(
    environments: Any, fields: dict[str, Any], path: str
) -> None:
    request = pb.CreateEnvironmentRequest(**{"name": "data"} | fields)
    error = await refusal(environments.CreateEnvironment(request))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith(path)
    listed = await environments.ListEnvironments(pb.ListEnvironmentsRequest(include_archived=True))
    assert list(listed.data) == []


@pytest.mark.parametrize(
    ("mask", "fields", "expected"),
    [
        ((), {}, "same"),
        (("config",), {}, "same"),
        (("name",), {}, "same"),
        (("scope",), {}, "same"),
        (("config",), {"config": EnvironmentConfig(cloud=CloudConfig())}, "same"),
        (("description",), {}, {"description": ""}),
        ((), {"description": "new"}, {"description": "new"}),
        ((), {"name": "web"}, {"name": "web"}),
        (("metadata",), {}, {"metadata": {}}),
        ((), {"metadata": {"set": {"n": "1", "k": ""}}}, {"metadata": {"n": "1"}}),
        ((), {"metadata": {"remove": ["k"]}}, {"metadata": {}}),
    ],
    ids=str,
)
async def test_what_each_way_of_saying_a_field_does(
    environments: Any, mask: tuple[str, ...], fields: dict[str, Any], expected: Any
) -> None:
    stored = await create(environments, description="d", metadata={"k": "v"})
    after = await update(environments, stored, *mask, **fields)
    assert await read(environments, stored.id) == after
    if expected == "same":
        assert after == stored
        return
    for field in ("name", "description", "metadata", "config", "scope"):
        assert getattr(after, field) == expected.get(field, getattr(stored, field))


async def test_omitted_parts_of_a_config_keep_their_values(environments: Any) -> None:
    config = limited("a.example", allow_mcp_servers=True, allow_package_managers=True)
    config.cloud.packages.pip.append("numpy")
    stored = await create(environments, config=config)
    hosts = await update(environments, stored, config=limited("b.example"))
    assert list(hosts.config.cloud.networking.limited.allowed_hosts) == ["b.example"]
    assert hosts.config.cloud.networking.limited.allow_mcp_servers
    assert hosts.config.cloud.packages == stored.config.cloud.packages
    packages = await update(environments, stored, config=packaged(npm=["zod"]))
    assert packages.config.cloud.packages == Packages(pip=["numpy"], npm=["zod"])
    assert packages.config.cloud.networking == hosts.config.cloud.networking
    emptied = await update(
        environments, stored, config=packaged(update_mask={"paths": ["pip", "npm"]})
    )
    assert emptied.config.cloud.packages == Packages()


async def test_a_config_change_that_breaks_a_rule_changes_nothing(environments: Any) -> None:
    stored = await create(environments, config=packaged(pip=["numpy"]))
    error = await refusal(update(environments, stored, name="web", config=limited("a.example")))
    assert error.message.startswith("config.networking.allow_package_managers: ")
    hosted = EnvironmentConfig(self_hosted=SelfHostedConfig())
    error = await refusal(update(environments, stored, config=hosted))
    assert (error.rule.http, error.error_code) == (400, "invalid_config_type_change")
    assert await read(environments, stored.id) == stored


async def test_archiving_is_for_good_and_may_be_repeated(environments: Any) -> None:
    stored = await create(environments)
    request = pb.ArchiveEnvironmentRequest(environment_id=stored.id)
    first = await environments.ArchiveEnvironment(request)
    assert first == await environments.ArchiveEnvironment(request)
    assert first.environment.HasField("archived_at")
    error = await refusal(update(environments, stored))
    assert (error.rule.http, error.error_code) == (400, "environment_archived")


@pytest.mark.parametrize("archived", [True, False])
async def test_environments_are_deleted_archived_or_not(
    environments: Any, *, archived: bool
) -> None:
    stored = await create(environments)
    if archived:
        await environments.ArchiveEnvironment(
            pb.ArchiveEnvironmentRequest(environment_id=stored.id)
        )
    request = pb.DeleteEnvironmentRequest(environment_id=stored.id)
    assert (await environments.DeleteEnvironment(request)).id == stored.id
    assert (await refusal(read(environments, stored.id))).reason is Reason.ENVIRONMENT_NOT_FOUND
    await create(environments)


async def test_lists_are_paged_newest_first_and_hide_the_archived(environments: Any) -> None:
    made = [await create(environments, str(number)) for number in range(4)]
    await environments.ArchiveEnvironment(pb.ArchiveEnvironmentRequest(environment_id=made[1].id))
    first = await environments.ListEnvironments(pb.ListEnvironmentsRequest(limit=2))
    second = await environments.ListEnvironments(
        pb.ListEnvironmentsRequest(limit=2, page=first.next_page)
    )
    assert [one.name for one in (*first.data, *second.data)] == ["3", "2", "0"]
    assert not second.HasField("next_page")
    whole = await environments.ListEnvironments(pb.ListEnvironmentsRequest(include_archived=True))
    assert [one.name for one in whole.data] == ["3", "2", "1", "0"]
    foreign = pb.ListEnvironmentsRequest(page=first.next_page, include_archived=True)
    error = await refusal(environments.ListEnvironments(foreign))
    assert error.message.startswith("page: ")
