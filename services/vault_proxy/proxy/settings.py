"""Settings of the egress proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from catalogue.hosts import canonical_host
from catalogue.package_hosts import package_hosts
from chassis.settings import Listen, Settings, host_and_port
from services.vault_proxy.domain.addresses import openings
from services.vault_proxy.domain.paths import operator_rules


def _listed(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(canonical_host(one) for one in value)


def _addresses(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        host_and_port(one)
    return value


def _openings(value: str) -> str:
    openings(value)
    return value


def _rules(value: str) -> str:
    operator_rules(value)
    return value


def _package_hosts(value: str) -> str:
    package_hosts(value)
    return value


class EgressSettings(Settings):
    """How sandboxes reach the outside."""

    egress_listen: Listen = Field(
        default="",
        description="Where hands bring the sandboxes' connections, host:port or unix: and a path. "
        "Unset: nowhere, and sandboxes have no network.",
    )
    egress_allow_private: Annotated[str, AfterValidator(_openings)] = Field(
        default="",
        description="Private networks that sandboxes may reach where their networking allows the "
        "host, with a port or with 80 and 443: 10.2.0.0/16, 127.0.0.1/32:9000, [fd00::/8]:8080.",
    )
    egress_ca_file: Path | None = Field(
        default=None,
        description="PEM file with authorities, besides the system's, that servers' certificates "
        "are verified with.",
    )
    egress_opaque: Annotated[
        tuple[str, ...], NoDecode, BeforeValidator(_listed), AfterValidator(_hosts)
    ] = Field(
        default=(),
        description="Hosts, exact or *. and a domain, whose TLS is passed on unopened: for clients "
        "that pin certificates. No credential is put in there, and no path is judged.",
    )
    egress_own_addresses: Annotated[
        tuple[str, ...], NoDecode, BeforeValidator(_listed), AfterValidator(_addresses)
    ] = Field(
        default=(),
        description="Further addresses of Drover's own, host:port, that sandboxes never reach: the "
        "gateway's, the databases' of other services, those of metrics. `drover up` knows them.",
    )
    egress_rules: Annotated[str, AfterValidator(_rules)] = Field(
        default="",
        description="Rules about methods and paths, asked in their order before the default ones, "
        "which deny known upload paths: a JSON list of objects such as "
        '{"effect": "deny", "hosts": ["*.example.com"], "methods": ["PUT"], "paths": ["/x/*"]}. '
        "An allowing rule opens no host.",
    )
    package_hosts: Annotated[str, AfterValidator(_package_hosts)] = Field(
        default="",
        description="Hosts that allow_package_managers opens in place of a manager's public ones: "
        "pip=packages.corp.example, npm=packages.corp.example; there are apt, cargo, gem, go, npm "
        "and pip.",
    )
