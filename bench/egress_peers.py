"""The processes that R8 measures: a server, a bare hop that puts a header in, and the proxy.

`python -m bench.egress_peers ROLE FOLDER [PORT ...]` prints where it listens once it does. FOLDER
has the certificates.
"""

from __future__ import annotations

import asyncio
import gc
import re
import ssl
import sys
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final, cast

import uvloop
from prometheus_client import CollectorRegistry

from catalogue.host_list import HostList
from chassis.clock import SystemClock
from services.vault_proxy.domain.addresses import AddressRules, openings
from services.vault_proxy.domain.audit import AuditEntry
from services.vault_proxy.domain.holdings import Holdings
from services.vault_proxy.domain.policy import EgressPolicy
from services.vault_proxy.domain.session import SessionAuthority
from services.vault_proxy.domain.substitution import RequestSubstitution
from services.vault_proxy.domain.target import Target
from services.vault_proxy.domain.verdict import Verdict
from services.vault_proxy.proxy.server import Parts, serving
from tests.doubles import egress
from tests.doubles.egress_proxy import NoGit

HOST: Final = "api.example.com"
VALUE: Final = "sk-" + "v" * 40
HELD: Final = egress.holdings(egress.credential(value=VALUE, hosts=(HOST,)))
_INJECTED: Final = f"Authorization: Bearer {VALUE}\r\n\r\n".encode()
_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 128\r\n\r\n" + b"x" * 128
)
_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


class _Server(asyncio.Protocol):
    """Answers every head; `expects` is in each that was not sent in vain."""

    def __init__(self, expects: bytes = b"") -> None:
        self._expects = expects

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._expects not in data:
            self._transport.abort()  # a hop that put nothing in is not measured
        self._transport.write(_ANSWER * data.count(_END))


class _Hop:
    """Puts a header into every request, and reads of HTTP no more than where messages end."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, out = await asyncio.open_connection("127.0.0.1", self._port)
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await client.readuntil(_END)
                out.write(head[:-2] + _INJECTED + await _body(client, head))
                head = await server.readuntil(_END)
                back.write(head + await _body(server, head))
        out.close()
        back.close()


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    found = _LENGTH.search(head)
    return await reader.readexactly(int(found[1])) if found else b""


class _Session:
    """A session whose rules are the real ones."""

    def __init__(self, rules: EgressPolicy, authority: SessionAuthority) -> None:
        self._rules = rules
        self.facts = rules.facts
        self._authority = authority

    def decide(self, target: Target) -> Verdict:
        return self._rules.decide(target)

    def substitution(self, target: Target) -> RequestSubstitution:
        held: Holdings = HELD
        return RequestSubstitution(held, target)

    async def authority(self) -> SessionAuthority:
        return self._authority


class _Around:
    """The proxy's other parts, without their databases."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self.recorded = 0

    async def of_grant(self, grant: str) -> _Session:
        del grant
        return self._session

    again = of_grant

    async def record(self, entry: AuditEntry) -> None:
        del entry
        self.recorded += 1

    async def resolve(self, name: str) -> Sequence[Any]:
        del name
        return [IPv4Address("127.0.0.1")]


async def _serve(role: str, folder: Path, ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    if role == "proxy":
        await _proxy(folder, ports)
    elif role == "hop":
        hop = await asyncio.start_server(_Hop(ports[0]).serve, "127.0.0.1", 0)
        print(hop.sockets[0].getsockname()[1], flush=True)
    else:
        context, expects = None, b""
        if role == "secure":
            expects = VALUE.encode()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "server.pem")
        server = await loop.create_server(lambda: _Server(expects), "127.0.0.1", 0, ssl=context)
        print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def _proxy(folder: Path, ports: list[int]) -> None:
    private = ",".join(f"127.0.0.1/32:{port}" for port in ports)
    authority = SessionAuthority(
        "sesn_1", (folder / "session.pem").read_bytes(), (folder / "session.key").read_bytes()
    )
    rules = egress.policy(egress.session(allowed=[HOST]), private=private)
    around = _Around(_Session(rules, authority))
    parts = Parts(
        sessions=around,
        addresses=AddressRules(openings(private)),
        audit=around,
        git=NoGit(),
        resolve=around.resolve,
        trust=ssl.create_default_context(cafile=str(folder / "outside.pem")),
        opaque=HostList(()),
        registry=CollectorRegistry(),
        clock=SystemClock(),
    )
    async with serving("127.0.0.1:0", parts) as address:
        print(address.rpartition(":")[2], flush=True)
        gc.freeze()  # as a process does that has started (chassis.lifecycle)
        await asyncio.Event().wait()


def main() -> None:
    """Serves until it is ended."""
    role, folder, *ports = sys.argv[1:]
    uvloop.run(_serve(role, Path(folder), [int(port) for port in ports]))


if __name__ == "__main__":
    main()
