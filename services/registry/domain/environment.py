"""An environment's life: made, changed by merging, archived, deleted. It has no versions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from catalogue.hosts import HostError, canonical_host
from catalogue.package_hosts import MANAGERS
from catalogue.packages import check_package
from catalogue.resources.metadata import merge
from catalogue.resources.presence import given
from catalogue.sandboxes import DEFAULT_CEILINGS
from chassis.errors import DroverError, Reason
from drover.environment.v1.environment_pb2 import (
    ENVIRONMENT_SCOPE_ACCOUNT,
    ENVIRONMENT_SCOPE_ORGANIZATION,
    CloudConfig,
    Environment,
    EnvironmentConfig,
    EnvironmentScope,
    LimitedNetwork,
    Networking,
    Packages,
)
from drover.environment.v1.environment_service_pb2 import (
    CreateEnvironmentRequest,
    UpdateEnvironmentRequest,
)
from services.registry.domain.sandbox import choose
from services.registry.domain.self_hosted import refuse_sandbox_metadata

_SWITCHES: Final = ("allow_mcp_servers", "allow_package_managers")


def new_environment(
    request: CreateEnvironmentRequest,
    environment_id: str,
    now: datetime,
    ceilings: Mapping[str, float] = DEFAULT_CEILINGS,
) -> Environment:
    """The environment that `request` describes; cloud and unrestricted by default.

    `ceilings` bound the limits of its sandboxes (`catalogue.sandboxes`). Raises INVALID_ARGUMENT.
    """
    environment = Environment(
        id=environment_id,
        name=request.name,
        description=request.description if request.HasField("description") else None,
        metadata=request.metadata,
        scope=_scope(request.scope),
    )
    _merge_config(environment.config, request.config)
    _settle_metadata(environment, ceilings)
    environment.created_at.FromDatetime(now)
    environment.updated_at.FromDatetime(now)
    return environment


def updated_environment(
    stored: Environment,
    request: UpdateEnvironmentRequest,
    now: datetime,
    ceilings: Mapping[str, float] = DEFAULT_CEILINGS,
) -> Environment:
    """`stored` with what `request` gives, or `stored` itself where that changes nothing.

    Raises ARCHIVED (`environment_archived`), INVALID_ARGUMENT (`invalid_config_type_change`) when
    the kind of config would change, INVALID_ARGUMENT for what is not accepted.
    """
    if stored.HasField("archived_at"):
        raise DroverError(
            Reason.ARCHIVED,
            f"environment {stored.id} is archived",
            error_code="environment_archived",
        )
    named = given(request)
    environment = Environment()
    environment.CopyFrom(stored)
    if "name" in named and request.HasField("name"):  # null keeps: there is always a name
        environment.name = request.name
    if "description" in named:
        environment.ClearField("description")
        if request.HasField("description"):
            environment.description = request.description
    if "scope" in named:
        environment.scope = _scope(request.scope)
    if "config" in named and request.HasField("config"):
        _merge_config(environment.config, request.config)
    if "metadata" in named:
        if not request.HasField("metadata"):
            environment.metadata.clear()
        merge(environment.metadata, request.metadata, empty_removes=True)
        _settle_metadata(environment, ceilings)
    if environment == stored:
        return stored
    environment.updated_at.FromDatetime(now)
    return environment


def _scope(scope: EnvironmentScope.ValueType) -> EnvironmentScope.ValueType:
    if scope == ENVIRONMENT_SCOPE_ACCOUNT:
        raise DroverError(
            Reason.INVALID_ARGUMENT, "scope: account is not available here, only organization"
        )
    return ENVIRONMENT_SCOPE_ORGANIZATION


def _merge_config(config: EnvironmentConfig, wanted: EnvironmentConfig) -> None:
    """Merges `wanted` into `config`, completes it and checks the whole."""
    kind, wanted_kind = config.WhichOneof("config"), wanted.WhichOneof("config")
    if kind and wanted_kind and kind != wanted_kind:
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            f"config.type: cannot be changed from {kind} to {wanted_kind}",
            error_code="invalid_config_type_change",
        )
    if "self_hosted" in {kind, wanted_kind}:
        config.self_hosted.SetInParent()
        return
    _merge_networking(config.cloud.networking, wanted.cloud)
    _merge_packages(config.cloud.packages, wanted.cloud.packages)
    _check_packages(config.cloud)


def _settle_metadata(environment: Environment, ceilings: Mapping[str, float]) -> None:
    if environment.config.HasField("self_hosted"):
        refuse_sandbox_metadata(environment.metadata)
    else:
        choose(environment.config.cloud, environment.metadata, ceilings)


def _merge_networking(networking: Networking, wanted: CloudConfig) -> None:
    chosen = wanted.networking.WhichOneof("networking")
    if chosen == "limited":
        _merge_limited(networking.limited, wanted.networking.limited)
    elif chosen == "unrestricted" or not networking.WhichOneof("networking"):
        networking.unrestricted.SetInParent()


def _merge_limited(limited: LimitedNetwork, wanted: LimitedNetwork) -> None:
    """What is absent keeps its value; null and empty are the narrowest: no host, not allowed."""
    named = given(wanted)
    if "allowed_hosts" in named:
        del limited.allowed_hosts[:]
        limited.allowed_hosts.extend(_hosts(wanted))
    for switch in _SWITCHES:
        if switch in named or not limited.HasField(switch):
            setattr(limited, switch, getattr(wanted, switch))


def _hosts(network: LimitedNetwork) -> list[str]:
    hosts = []
    for index, host in enumerate(network.allowed_hosts):
        try:
            hosts.append(canonical_host(host))
        except HostError as error:
            raise DroverError(
                Reason.INVALID_ARGUMENT, f"config.networking.allowed_hosts.{index}: {error}"
            ) from None
    return hosts


def _merge_packages(packages: Packages, wanted: Packages) -> None:
    packages.SetInParent()  # answered with all six lists, empty ones too
    named = given(wanted)
    for manager in MANAGERS:
        if manager in named:
            packages.ClearField(manager)
            getattr(packages, manager).extend(getattr(wanted, manager))


def _check_packages(cloud: CloudConfig) -> None:
    for manager in MANAGERS:
        for index, package in enumerate(getattr(cloud.packages, manager)):
            try:
                check_package(manager, package)
            except ValueError as error:
                path = f"config.packages.{manager}.{index}"
                raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {error}") from None
    limited = cloud.networking.HasField("limited")
    if not limited or cloud.networking.limited.allow_package_managers:
        return
    for manager in MANAGERS:
        if getattr(cloud.packages, manager):
            raise DroverError(
                Reason.INVALID_ARGUMENT,
                "config.networking.allow_package_managers: "
                f"must be true under limited networking with packages ({manager})",
            )
