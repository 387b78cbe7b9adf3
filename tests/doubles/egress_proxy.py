"""The egress proxy's wire in a test: the real one, with sessions that the test makes up.

Sandboxes are sockets that the test writes to, byte for byte; answers are read by h11, which is not
the code under test.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import h11
from prometheus_client import CollectorRegistry

from catalogue.host_list import HostList
from chassis.clock import SystemClock
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.domain.addresses import AddressRules, openings
from services.vault_proxy.domain.audit import AuditEntry
from services.vault_proxy.domain.holdings import Holdings
from services.vault_proxy.domain.policy import EgressPolicy
from services.vault_proxy.domain.ports import GitProxy, GitRules, Headers
from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.domain.session import SessionAuthority, SessionFacts
from services.vault_proxy.domain.substitution import RequestSubstitution
from services.vault_proxy.domain.target import Target
from services.vault_proxy.domain.verdict import Answer, GitRoute, Verdict
from services.vault_proxy.proxy.dial import Address
from services.vault_proxy.proxy.limits import Limits
from services.vault_proxy.proxy.server import Parts, serving
from tests.doubles import egress
from tests.doubles.certificates import Authority

GRANT = "grant-1"


class Policy:
    """One session's policy, by the real rules."""

    def __init__(self, world: World, session: Session) -> None:
        self.facts = SessionFacts("wrkspc_1", "hand_1", session)
        self._world = world
        made = egress.policy(session, private=world.private)
        self._rules = EgressPolicy(made.installation, made.networking, self.facts, world.git_rules)

    def decide(self, target: Target) -> Verdict:
        self._world.targets.append(target)
        return self._rules.decide(target)

    def substitution(self, target: Target) -> RequestSubstitution:
        return RequestSubstitution(self._world.holdings, target)

    async def authority(self) -> SessionAuthority:
        authority = self._world.authority
        return SessionAuthority(
            self.facts.session_id, authority.certificate.encode(), authority.key.encode()
        )


class NoGit:
    """No request is git's."""

    async def request(
        self, facts: SessionFacts, route: GitRoute, headers: Headers
    ) -> list[tuple[bytes, bytes]]:
        raise NotImplementedError

    def answer(self, status: int, headers: Headers) -> Answer:
        raise NotImplementedError


@dataclass(slots=True)
class World:
    """What the proxy believes. May be changed while it runs."""

    sessions: dict[str, Session] = field(default_factory=lambda: {GRANT: egress.session()})
    names: dict[str, list[str]] = field(default_factory=dict)
    """Where names lead; others do not resolve."""
    private: str = "127.0.0.0/8"
    own: Sequence[str] = ()
    holdings: Holdings = field(default_factory=egress.holdings)
    authority: Authority = field(default_factory=lambda: Authority("Drover session sesn_1"))
    git_rules: GitRules = field(default_factory=egress.NoRepositories)
    git: GitProxy = field(default_factory=NoGit)
    outside: Authority = field(default_factory=lambda: Authority("Outside"))
    """Signs servers' certificates."""
    opaque: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    failure: Exception | None = None
    """Raised instead of any policy."""
    trail: list[AuditEntry] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    dialled: list[tuple[Address, int]] = field(default_factory=list)
    metrics: CollectorRegistry = field(default_factory=CollectorRegistry)
    tls: ssl.SSLContext | None = None
    """What hands are shown, if they are to show who they are."""
    address: str = ""
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    # ---- the proxy's ports ----

    async def of_grant(self, grant: str) -> Policy:
        if self.failure is not None:
            raise self.failure
        session = self.sessions.get(grant)
        if session is None:
            raise RefusedError(Refusal(Why.GRANT_INVALID, "the grant is not known"))
        return Policy(self, session)

    async def again(self, grant: str) -> Policy:
        return await self.of_grant(grant)

    async def record(self, entry: AuditEntry) -> None:
        self.trail.append(entry)

    async def resolve(self, name: str) -> Sequence[Address]:
        self.resolved.append(name)
        if name not in self.names:
            raise OSError
        return [ip_address(text) for text in self.names[name]]

    def judge(self, address: Address, port: int) -> Refusal | None:
        refusal = AddressRules(openings(self.private)).judge(address, port)
        if refusal is None:
            self.dialled.append((address, port))
        return refusal

    # ---- what tests ask ----

    def open(self, *names: str, port: int) -> None:
        """Has names lead to loopback, at that port too."""
        self.names |= {name: ["127.0.0.1"] for name in names}
        self.private += f",127.0.0.1/32:{port}"

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        """The trail's verdicts and reasons."""
        return [(entry.verdict, entry.reason) for entry in self.trail]

    async def sandbox(self, grant: str = GRANT) -> Sandbox:
        """A connection as hands bring it."""
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
        self.writers.append(writer)
        writer.write(f"DROVER/1 {grant}\n".encode())
        return Sandbox(reader, writer, self.authority)


@asynccontextmanager
async def proxied(world: World) -> AsyncIterator[World]:
    """Runs the proxy in that world."""
    trust = ssl.create_default_context(cadata=world.outside.certificate)
    parts = Parts(
        sessions=world,
        addresses=world,
        audit=world,
        git=world.git,
        resolve=world.resolve,
        trust=trust,
        opaque=HostList(world.opaque),
        registry=world.metrics,
        clock=SystemClock(),
        limits=world.limits,
        tls=world.tls,
    )
    async with serving("127.0.0.1:0", parts) as world.address:
        try:
            yield world
        finally:
            for writer in world.writers:
                writer.transport.abort()


@dataclass(slots=True)
class Answered:
    """An answer. `body` is without its framing."""

    status: int
    reason: str
    fields: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> Any:
        """The error of one of the proxy's own."""
        return json.loads(self.body)["error"]

    @property
    def why(self) -> str | None:
        """The reason of a refusal, once header and body agree on it."""
        said = self.fields.get("x-drover-egress")
        if said is None:
            return None
        assert said.endswith(f"; reason={self.error['reason']}")
        assert self.error["type"] == f"egress_{said.partition(';')[0]}"
        assert self.error["message"]
        return str(self.error["reason"])


class Sandbox:
    """A program's connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: Authority
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._authority = authority
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, data: bytes, *, method: bytes = b"GET") -> Answered:
        """Sends these bytes and reads an answer to a request of that method."""
        self.send(data)
        return await self.answer(method=method)

    async def answer(self, *, method: bytes = b"GET") -> Answered:
        """The next answer. Raises `ConnectionError` where there is none, or not all of one."""
        if self._h11.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self._h11.start_next_cycle()
        if self._h11.our_state is h11.IDLE:
            self._h11.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"h")]))
            self._h11.send(h11.EndOfMessage())
        response, body = None, b""
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
        assert response is not None
        fields = {name.decode(): value.decode() for name, value in response.headers}
        return Answered(response.status_code, response.reason.decode(), fields, body)

    async def _event(self) -> object:
        try:
            while (event := self._h11.next_event()) is h11.NEED_DATA:
                data = await self.reader.read(1 << 16)
                if not data and self._h11.their_state is not h11.SEND_BODY:
                    raise ConnectionError
                self._h11.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise ConnectionError from error
        if isinstance(event, h11.ConnectionClosed):
            raise ConnectionError
        return event

    async def tunnel(self, authority: str) -> Answered | None:
        """Opens a tunnel; `None` once it is open."""
        self.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 200 "):
            return None
        self._h11.receive_data(head)
        return await self.answer()

    async def secure(
        self,
        name: str | None,
        *,
        checked: bool = True,
        authority: Authority | None = None,
        version: ssl.TLSVersion | None = None,
    ) -> ssl.SSLObject:
        """Goes on in TLS; trusts the session's authority alone, or another."""
        trusted = authority or self._authority
        context = ssl.create_default_context(cadata=trusted.certificate)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if name is None or not checked:
            context.check_hostname = False
        await self.writer.start_tls(context, server_hostname=name)
        found: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        return found

    async def ended(self) -> bool:
        """Waits for the connection to end; whether nothing more came."""
        try:
            return not await self.reader.read()
        except ConnectionError:
            return True
