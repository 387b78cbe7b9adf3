"""The web as the web tools find it: names that all lead to servers on loopback, and an audit."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

from prometheus_client import CollectorRegistry

from chassis.clock import SystemClock
from drover.agent.v1.tool_pb2 import WebSettings
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.domain.addresses import AddressRules, openings
from services.vault_proxy.domain.audit import AuditEntry
from services.vault_proxy.domain.session import SessionFacts
from services.vault_proxy.outbound import Outbound
from services.vault_proxy.proxy.dial import JudgingDialler
from services.vault_proxy.web.content import Shown
from services.vault_proxy.web.fetching import Fetcher
from services.vault_proxy.web.meter import WebMeter
from services.vault_proxy.web.providers.port import SearchProvider
from services.vault_proxy.web.reading import PageReader
from services.vault_proxy.web.searching import Searcher
from services.vault_proxy.web.tools import WebTools
from tests.doubles.origin import Asked


def answer(body: bytes | str, kind: str = "text/html", *headers: str, status: int = 200) -> bytes:
    """A whole answer."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"Content-Type: {kind}"] if kind else []
    return "\r\n".join([*lines, *headers, "", ""]).encode() + data


def always(reply: bytes) -> Callable[[Asked], bytes]:
    """A server that says the same to everyone."""
    return lambda _: reply


def moved(location: str, status: int = 302) -> bytes:
    """A redirect."""
    return answer("", "", f"Location: {location}", status=status)


def pages(by_path: dict[str, bytes]) -> Callable[[Asked], bytes]:
    """A server's replies, by path and query."""

    def reply(asked: Asked) -> bytes:
        path = asked.line.split()[1].decode()
        return by_path.get(path, answer("no such page", "text/plain", status=404))

    return reply


@dataclass(slots=True)
class Trail:
    """Keeps what it is told."""

    entries: list[AuditEntry] = field(default_factory=list)

    async def record(self, entry: AuditEntry) -> None:
        self.entries.append(entry)
        await asyncio.sleep(0)


class Web:
    """The web tools over real sockets. Ports that are `opened` are reached on loopback."""

    def __init__(
        self,
        *opened: int,
        trust: ssl.SSLContext | None = None,
        provider: Callable[[Outbound], SearchProvider] | None = None,
    ) -> None:
        self.trail = Trail()
        self.registry = CollectorRegistry()
        self.resolved: list[str] = []
        self.leads = {"metadata.example": "169.254.169.254", "intranet.example": "10.1.2.3"}
        rules = AddressRules(openings(",".join(f"127.0.0.1/32:{port}" for port in opened)))
        outbound = Outbound(
            JudgingDialler(rules, self._resolve), trust or ssl.create_default_context()
        )
        numbers = itertools.count(1)
        self.tools = WebTools(
            Fetcher(outbound),
            Shown(PageReader(), lambda: f"mark{next(numbers)}"),
            Searcher(provider(outbound) if provider else None),
            audit=self.trail,
            clock=SystemClock(),
            meter=WebMeter(self.registry),
        )

    async def fetch(
        self, url: str, settings: WebSettings | None = None, session: Session | None = None
    ) -> tuple[str, str]:
        """The error code, and the text of the answer."""
        told = await self.tools.fetch(facts(session), url, settings or WebSettings(), "sevt_1")
        assert told.is_error == bool(told.error_code)
        return told.error_code, "\n".join(block.text.text for block in told.content)

    async def _resolve(self, name: str) -> Sequence[IPv4Address | IPv6Address]:
        self.resolved.append(name)
        return [ip_address(self.leads.get(name, "127.0.0.1"))]


def facts(session: Session | None = None) -> SessionFacts:
    """Who asks."""
    return SessionFacts("wrkspc_1", "hand_1", session or unrestricted())


def unrestricted() -> Session:
    """A session that may reach the internet."""
    session = Session(id="sesn_1")
    session.environment.cloud.networking.unrestricted.SetInParent()
    return session


def limited(*hosts: str) -> Session:
    """A session that may reach these hosts, and whatever an environment can allow beside them."""
    session = Session(id="sesn_1")
    network = session.environment.cloud.networking.limited
    network.allowed_hosts.extend(hosts)
    network.allow_mcp_servers = network.allow_package_managers = True
    return session
