from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from chassis.errors import DroverError, Reason
from drover.api.v1.metadata_pb2 import MetadataPatch
from drover.environment.v1.environment_pb2 import (
    ENVIRONMENT_SCOPE_ACCOUNT,
    ENVIRONMENT_SCOPE_ORGANIZATION,
    CloudConfig,
    Environment,
    EnvironmentConfig,
    LimitedNetwork,
    Networking,
    Packages,
    SelfHostedConfig,
    UnrestrictedNetwork,
)
from drover.environment.v1.environment_service_pb2 import (
    CreateEnvironmentRequest,
    UpdateEnvironmentRequest,
)
from services.registry.domain.environment import new_environment, updated_environment

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)
UNRESTRICTED = Networking(unrestricted=UnrestrictedNetwork())
HOSTED = EnvironmentConfig(self_hosted=SelfHostedConfig())


def cloud(
    networking: Networking | None = None, packages: Packages | None = None
) -> EnvironmentConfig:
    return EnvironmentConfig(cloud=CloudConfig(networking=networking, packages=packages))


def limited(*hosts: str, mask: list[str] | None = None, **switches: bool) -> Networking:
    present = None if mask is None else FieldMask(paths=mask)
    return Networking(limited=LimitedNetwork(allowed_hosts=hosts, update_mask=present, **switches))


def stored(**fields: object) -> Environment:
    request = CreateEnvironmentRequest(**{"name": "data"} | fields)  # type: ignore[arg-type]
    return new_environment(request, "env_1", NOON)


def update(environment: Environment, *named: str, **fields: object) -> Environment:
    mask = FieldMask(paths=named) if named else None
    request = UpdateEnvironmentRequest(
        environment_id=environment.id,
        update_mask=mask,
        **fields,  # type: ignore[arg-type]
    )
    return updated_environment(environment, request, LATER)


def refusal(environment: Environment, *named: str, **fields: object) -> DroverError:
    before = environment.SerializeToString(deterministic=True)
    with pytest.raises(DroverError) as refused:
        update(environment, *named, **fields)
    assert environment.SerializeToString(deterministic=True) == before
    return refused.value


def create_refusal(**fields: object) -> DroverError:
    with pytest.raises(DroverError) as refused:
        stored(**fields)
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    return refused.value


@pytest.mark.parametrize("config", [None, cloud(), cloud(UNRESTRICTED, Packages())])
def test_the_default_is_cloud_unrestricted_and_without_packages(
    config: EnvironmentConfig | None,
) -> None:
    environment = stored(config=config)
    assert environment.config.cloud.networking.HasField("unrestricted")
    assert environment.config.cloud.HasField("packages")
    assert environment.config.cloud.packages == Packages()
    assert environment.scope == ENVIRONMENT_SCOPE_ORGANIZATION


def test_limited_networking_is_answered_with_both_switches() -> None:
    network = stored(config=cloud(limited("packages.example.org"))).config.cloud.networking.limited
    assert network.HasField("allow_mcp_servers")
    assert network.HasField("allow_package_managers")
    assert not network.allow_mcp_servers
    assert not network.allow_package_managers


def test_presence_masks_are_not_stored() -> None:
    packages = Packages(pip=["numpy"], update_mask=FieldMask(paths=["pip"]))
    network = limited(
        "a.example", mask=["allowed_hosts", "allow_package_managers"], allow_package_managers=True
    )
    config = stored(config=cloud(network, packages)).config.cloud
    assert not config.packages.HasField("update_mask")
    assert not config.networking.limited.HasField("update_mask")


def test_a_bad_host_is_named_by_its_path() -> None:
    error = create_refusal(config=cloud(limited("ok.example", "https://a.example")))
    assert error.message == (
        "config.networking.allowed_hosts.1: must be a bare host name, without a scheme"
    )


def test_packages_under_limited_networking_need_package_managers() -> None:
    error = create_refusal(config=cloud(limited(), Packages(pip=["numpy"])))
    assert error.message.startswith("config.networking.allow_package_managers: must be true")
    stored(config=cloud(limited(allow_package_managers=True), Packages(pip=["numpy"])))
    stored(config=cloud(UNRESTRICTED, Packages(pip=["numpy"])))


def test_a_self_hosted_environment_has_nothing_to_configure() -> None:
    environment = stored(config=HOSTED, metadata={"team": "a"})
    assert environment.config == HOSTED
    assert update(environment, config=HOSTED) is environment
    changed = update(environment, metadata=MetadataPatch(set={"team": "b"}))
    assert (changed.config, changed.metadata["team"]) == (HOSTED, "b")


@pytest.mark.parametrize("key", ["drover.sandbox", "drover.sandbox_image", "drover.memory_mib"])
def test_metadata_about_sandboxes_is_refused_where_workers_have_their_own(key: str) -> None:
    assert create_refusal(config=HOSTED, metadata={key: "1"}).message.startswith(f"metadata.{key}:")
    patch = MetadataPatch(set={key: "1"})
    error = refusal(stored(config=HOSTED), "metadata", metadata=patch)
    assert error.message.startswith(f"metadata.{key}: ")


def test_a_self_hosted_environment_does_not_become_one_of_drovers_sandboxes() -> None:
    error = refusal(stored(config=HOSTED), config=EnvironmentConfig(cloud=CloudConfig()))
    assert error.error_code == "invalid_config_type_change"


def test_the_account_scope_is_refused() -> None:
    assert create_refusal(scope=ENVIRONMENT_SCOPE_ACCOUNT).message.startswith("scope: ")
    assert refusal(stored(), scope=ENVIRONMENT_SCOPE_ACCOUNT).message.startswith("scope: ")


def test_archived_environments_are_read_only() -> None:
    environment = stored()
    environment.archived_at.FromDatetime(NOON)
    error = refusal(environment)
    assert (error.reason, error.error_code) == (Reason.ARCHIVED, "environment_archived")


def test_the_kind_of_config_is_fixed() -> None:
    error = refusal(stored(), config=HOSTED)
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.error_code == "invalid_config_type_change"


def test_omitted_config_fields_keep_their_values() -> None:
    before = stored(
        config=cloud(
            limited("a.example", allow_mcp_servers=True, allow_package_managers=True),
            Packages(pip=["numpy"], npm=["zod"]),
        )
    )
    after = update(before, config=cloud(limited("b.example"))).config.cloud
    assert list(after.networking.limited.allowed_hosts) == ["b.example"]
    assert after.networking.limited.allow_mcp_servers
    assert after.packages == before.config.cloud.packages
    after = update(before, config=cloud(packages=Packages(pip=["scipy"]))).config.cloud
    assert after.packages == Packages(pip=["scipy"], npm=["zod"])
    assert after.networking == before.config.cloud.networking


def test_null_and_empty_configs_change_nothing() -> None:
    before = stored(config=cloud(limited("a.example")))
    assert update(before, "config") is before
    assert update(before, "config", config=cloud()) is before
    assert update(before, "config", config=cloud(limited())) is before


def test_a_present_empty_list_clears() -> None:
    before = stored(
        config=cloud(limited("a.example", allow_package_managers=True), Packages(pip=["numpy"]))
    )
    emptied = limited(mask=["allowed_hosts"])
    after = update(before, config=cloud(emptied)).config.cloud
    assert list(after.networking.limited.allowed_hosts) == []
    no_pip = Packages(update_mask=FieldMask(paths=["pip"]))
    assert update(before, config=cloud(packages=no_pip)).config.cloud.packages == Packages()


def test_null_inside_limited_networking_is_the_narrowest_value() -> None:
    before = stored(config=cloud(limited("a.example", allow_mcp_servers=True)))
    nulls = limited(mask=["allowed_hosts", "allow_mcp_servers"])
    network = update(before, config=cloud(nulls)).config.cloud.networking.limited
    assert list(network.allowed_hosts) == []
    assert network.HasField("allow_mcp_servers")
    assert not network.allow_mcp_servers


def test_going_limited_starts_with_the_defaults_of_limited() -> None:
    after = update(stored(), config=cloud(limited("a.example"))).config.cloud.networking
    assert after.limited.HasField("allow_mcp_servers")
    assert not after.limited.allow_mcp_servers


def test_going_unrestricted_forgets_the_hosts() -> None:
    before = stored(config=cloud(limited("a.example")))
    after = update(before, config=cloud(UNRESTRICTED)).config.cloud.networking
    assert after == UNRESTRICTED


def test_turning_package_managers_off_under_packages_is_refused() -> None:
    before = stored(config=cloud(limited(allow_package_managers=True), Packages(pip=["numpy"])))
    error = refusal(before, config=cloud(limited(allow_package_managers=False)))
    assert error.message.startswith("config.networking.allow_package_managers: ")


def test_descriptions_are_kept_when_absent_cleared_by_null_and_may_be_empty() -> None:
    before = stored(description="d")
    assert update(before, name="web").description == "d"
    assert not update(before, "description").HasField("description")
    emptied = update(before, "description", description="")
    assert emptied.HasField("description")
    assert emptied.description == ""


def test_a_null_name_keeps_the_name() -> None:
    before = stored()
    assert update(before, "name") is before


def test_metadata_merges_and_empty_values_remove() -> None:
    before = stored(metadata={"keep": "1", "drop": "2", "null": "3"})
    after = update(before, metadata={"set": {"drop": "", "new": "4"}, "remove": ["null"]})
    assert dict(after.metadata) == {"keep": "1", "new": "4"}


def test_only_a_difference_moves_updated_at() -> None:
    before = stored(metadata={"a": "1"})
    assert update(before, name="data", metadata={"set": {"a": "1"}}) is before
    after = update(before, name="web")
    assert after.updated_at.ToDatetime(UTC) == LATER
    assert after.created_at.ToDatetime(UTC) == NOON
