"""The vault proxy's MCP client with everything around it in memory, but the network."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from prometheus_client import CollectorRegistry

from chassis.secret import Secret
from drover.agent.v1.tool_pb2 import McpServer as ServerOfAgent
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.domain.addresses import AddressRules, InClear, openings
from services.vault_proxy.domain.audit import AuditEntry
from services.vault_proxy.domain.server_credential import (
    BearerCredential,
    ClientAuth,
    NewTokens,
    OauthCredential,
    Refresh,
    ServerCredential,
)
from services.vault_proxy.domain.server_url import normalised
from services.vault_proxy.domain.session import SessionFacts
from services.vault_proxy.mcp.limits import Limits
from services.vault_proxy.mcp.meter import McpMeter
from services.vault_proxy.mcp.probe import LiveProbe
from services.vault_proxy.mcp.records import Records
from services.vault_proxy.mcp.servers import McpServers
from services.vault_proxy.oauth.endpoint import TokenEndpoints
from services.vault_proxy.oauth.tokens import AccessTokens
from services.vault_proxy.outbound import Outbound, Timeouts, trust
from services.vault_proxy.proxy.dial import JudgingDialler

Address = IPv4Address | IPv6Address


_trusted = functools.cache(trust)
"""The system's certificates take a while to read."""


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds / 50)


class Moved:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Vaults:
    """Credentials. `broken` is raised when tokens are stored, one after the other."""

    def __init__(self) -> None:
        self.kept: dict[str, ServerCredential] = {}
        self.broken: list[Exception] = []
        self.before_latest: Callable[[], object] = lambda: None

    def add(self, credential: ServerCredential) -> ServerCredential:
        """Saves one."""
        self.kept[credential.id] = credential
        return credential

    async def for_server(
        self, _workspace_id: str, vault_ids: Sequence[str], url: str
    ) -> ServerCredential | None:
        """As the port says."""
        return next(
            (
                one
                for vault_id in vault_ids
                for one in self.kept.values()
                if one.vault_id == vault_id and normalised(one.server_url) == normalised(url)
            ),
            None,
        )

    async def latest(
        self, _workspace_id: str, credential: ServerCredential
    ) -> ServerCredential | None:
        """As the port says."""
        self.before_latest()
        return self.kept.get(credential.id)

    async def refreshed(
        self, _workspace_id: str, credential: OauthCredential, tokens: NewTokens
    ) -> OauthCredential | None:
        """As the port says."""
        if self.broken:
            raise self.broken.pop()
        stored = self.kept.get(credential.id)
        if not isinstance(stored, OauthCredential):
            return None
        if stored.revision == credential.revision and stored.refresh is not None:
            refresh = replace(
                stored.refresh, refresh_token=tokens.refresh_token or stored.refresh.refresh_token
            )
            stored = replace(
                stored,
                access_token=tokens.access_token,
                expires_at=tokens.expires_at,
                refresh=refresh,
                revision=stored.revision + 1,
            )
            self.kept[credential.id] = stored
        return stored


@dataclass
class Trail:
    """The audit trail."""

    entries: list[AuditEntry] = field(default_factory=list)

    async def record(self, entry: AuditEntry) -> None:
        """As the port says."""
        self.entries.append(entry)

    def reasons(self) -> list[tuple[str, str]]:
        """Method and reason of each."""
        return [(entry.method, entry.reason) for entry in self.entries]


@dataclass
class World:
    """What a test of the client works with."""

    servers: McpServers
    probe: LiveProbe
    vaults: Vaults
    trail: Trail
    clock: Moved
    names: dict[str, str]
    """Where names lead to."""

    def facts(
        self, url: str, *, session: str = "sesn_1", vaults: Sequence[str] = ("vlt_1",)
    ) -> SessionFacts:
        """A session whose agent has the one server `srv`."""
        told = Session(id=session, vault_ids=vaults)
        told.environment.cloud.networking.unrestricted.SetInParent()
        told.agent.mcp_servers.append(ServerOfAgent(name="srv", url=url))
        return SessionFacts("wrkspc_1", "hand_1", told)

    def bearer(self, url: str, token: str, *, name: str = "vcrd_1", vault: str = "vlt_1") -> None:
        """Saves a `static_bearer` credential."""
        self.vaults.add(BearerCredential(name, vault, url, Secret(token)))

    def oauth(
        self,
        url: str,
        access_token: str,
        refresh_token: str | None,
        endpoint: str,
        *,
        expires_in: float | None = 3600,
        client: tuple[str, ClientAuth, str | None] = ("drover", "none", None),
        scope: str = "",
        resource: str = "",
        name: str = "vcrd_1",
    ) -> OauthCredential:
        """Saves an `mcp_oauth` credential."""
        refresh = None
        if refresh_token is not None:
            client_id, method, secret = client
            refresh = Refresh(
                client_id=client_id,
                token_endpoint=endpoint,
                client_auth=method,
                client_secret=Secret(secret) if secret else None,
                refresh_token=Secret(refresh_token),
                scope=scope,
                resource=resource,
            )
        expires_at = self.clock.now() + timedelta(seconds=expires_in) if expires_in else None
        credential = OauthCredential(
            name, "vlt_1", url, Secret(access_token), expires_at, refresh, 1
        )
        self.vaults.add(credential)
        return credential

    def stored(self, name: str = "vcrd_1") -> OauthCredential:
        """The credential as it is kept now."""
        found = self.vaults.kept[name]
        assert isinstance(found, OauthCredential)
        return found


@asynccontextmanager
async def mcp_world(
    *ports: int,
    limits: Limits | None = None,
    idle: float = 5.0,
    ca_file: Path | None = None,
) -> AsyncIterator[World]:
    """A client that may reach these ports of loopback, and nothing else that is not public.

    `ca_file` is trusted beside the system's authorities.
    """
    given = limits or Limits(idle_seconds=idle, call_seconds=20, connect_seconds=5)
    opened = ", ".join(f"127.0.0.1/32:{port}" for port in ports)
    names: dict[str, str] = {}

    async def resolve(name: str) -> Sequence[Address]:
        return [IPv4Address(names.get(name, "127.0.0.1"))]

    rules = AddressRules(openings(opened))
    outbound = Outbound(
        JudgingDialler(rules, resolve), _trusted(ca_file), JudgingDialler(InClear(rules), resolve)
    )
    clock, vaults, trail = Moved(), Vaults(), Trail()
    meter = McpMeter(CollectorRegistry())
    records = Records(trail, clock, meter)
    async with (
        outbound.client(timeouts=Timeouts(connect=5, idle=idle)) as client,
        asyncio.TaskGroup() as tasks,
    ):
        tokens = AccessTokens(vaults, TokenEndpoints(client, clock), clock, tasks, pause=_pause)
        probe = LiveProbe(tokens, outbound, records, tasks=tasks, limits=given)
        servers = McpServers(
            vaults, tokens, outbound, records, tasks=tasks, meter=meter, limits=given
        )
        try:
            yield World(servers, probe, vaults, trail, clock, names)
        finally:
            await servers.close()
