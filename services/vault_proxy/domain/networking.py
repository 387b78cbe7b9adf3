"""Which hosts an environment's networking opens (SEMANTICS §6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from catalogue.host_list import HostList
from catalogue.hosts import HostError, canonical_host, parse_url
from services.vault_proxy.domain.refusal import Refusal, Why

if TYPE_CHECKING:
    from catalogue.hosts import Host
    from drover.environment.v1.environment_pb2 import EnvironmentConfig
    from drover.session.v1.session_pb2 import Session

_UNREADABLE = Refusal(
    Why.POLICY_UNAVAILABLE,
    "the session's networking is not known, so that nothing is let out: make a new session",
)


@dataclass(frozen=True, slots=True)
class Networking:
    """Hosts that a session may reach. `limited` is false where that is every public one."""

    limited: bool
    listed: HostList
    servers: HostList
    packages: HostList
    exact: frozenset[str]
    servers_allowed: bool = False
    packages_allowed: bool = False
    readable: bool = True

    def refusal(self, host: Host) -> Refusal | None:
        """Why the host may not be reached, and what would allow it; `None` if it may."""
        if not self.readable:
            return _UNREADABLE
        if not self.limited or host in self.listed:
            return None
        if self.servers_allowed and host in self.servers:
            return None
        if self.packages_allowed and host in self.packages:
            return None
        return Refusal(Why.HOST_NOT_ALLOWED, f"the host {host} is not allowed: {self._hint(host)}")

    def meets(self, pattern: str) -> bool:
        """Whether any host of a listed pattern may be reached."""
        return self.readable and (
            not self.limited
            or self.listed.meets(pattern)
            or (self.servers_allowed and self.servers.meets(pattern))
            or (self.packages_allowed and self.packages.meets(pattern))
        )

    def _hint(self, host: Host) -> str:
        if host.address is not None:
            return "limited networking lists names alone; reach it by its name, and list that"
        where = "config.networking of the environment, for sessions made from then on"
        if host in self.packages:
            return f"set allow_package_managers, or list it in allowed_hosts, in {where}"
        if host in self.servers:
            return f"set allow_mcp_servers, or list it in allowed_hosts, in {where}"
        return f"list it in allowed_hosts of {where}"


def networking_of(session: Session, package_hosts: Mapping[str, Iterable[str]]) -> Networking:
    """The session's networking, as its environment was when it was made.

    What cannot be read opens nothing (case E14). A self-hosted environment has no say about what
    the control plane itself fetches for it: that is as under unrestricted networking.
    """
    servers = HostList(_server_hosts(session))
    packages = HostList(chain.from_iterable(package_hosts.values()))
    config: EnvironmentConfig = session.environment
    kind = config.cloud.networking.WhichOneof("networking") if config.HasField("cloud") else None
    if kind == "limited":
        limited = config.cloud.networking.limited
        patterns = tuple(_readable(limited.allowed_hosts))
        return Networking(
            limited=True,
            listed=HostList(patterns),
            servers=servers,
            packages=packages,
            exact=frozenset(one for one in patterns if not one.startswith("*.")),
            servers_allowed=limited.allow_mcp_servers,
            packages_allowed=limited.allow_package_managers,
        )
    readable = kind == "unrestricted" or config.HasField("self_hosted")
    return Networking(
        limited=False,
        listed=HostList(()),
        servers=servers,
        packages=packages,
        exact=frozenset(),
        readable=readable,
    )


def _server_hosts(session: Session) -> Iterable[str]:
    for server in session.agent.mcp_servers:
        try:
            host = parse_url(server.url).host
        except HostError:
            continue  # it is not reached either
        if host.address is None:
            yield host.text


def _readable(patterns: Iterable[str]) -> Iterable[str]:
    for pattern in patterns:
        try:
            yield canonical_host(pattern)
        except HostError:
            continue  # no longer taken, as `*.com` was once
