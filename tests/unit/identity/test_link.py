"""TLS below a protocol: over real sockets, with certificates of the installation's kind."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from identity.authority import Authority, place
from identity.credentials import Credentials
from identity.link import PeerError, below, dial
from identity.names import name_of
from tests.unit.identity.conftest import NOW

HANDS, PROXY = name_of("hands"), name_of("vault_proxy")


OPEN: list[Recorder] = []


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    for one in OPEN:
        one.transport.abort()
        await one.gone.wait()
    OPEN.clear()


class Recorder(asyncio.Protocol):
    """Notes what a transport brings."""

    def __init__(self, *, half_open: bool = True) -> None:
        self.got = bytearray()
        self.half_open = half_open
        self.transport: Any = None
        self.lost: list[Exception | None] = []
        self.ended = asyncio.Event()
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        OPEN.append(self)

    def data_received(self, data: bytes) -> None:
        self.got += data

    def eof_received(self) -> bool:
        self.ended.set()
        return self.half_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)
        self.gone.set()


class Echo(Recorder):
    """Says it all again, and that this was all once the other has."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)

    def eof_received(self) -> bool:
        self.transport.write(b"; that was all")
        self.transport.write_eof()
        return super().eof_received()


@pytest.fixture
def hands(certificates: Path) -> ssl.SSLContext:
    return Credentials.read(certificates / "hands", "hands").client_context()


@pytest.fixture
def proxy(certificates: Path) -> ssl.SSLContext:
    return Credentials.read(certificates / "vault_proxy", "vault_proxy").server_context()


@asynccontextmanager
async def serving(made: Callable[[], asyncio.Protocol]) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def dialled(port: int, context: ssl.SSLContext, peer: str = PROXY) -> Recorder:
    made = await dial("127.0.0.1", port, context, peer, Recorder)
    assert isinstance(made, Recorder)
    return made


async def other(end: Recorder) -> Recorder:
    """The server's side of it. A client may be done with the handshake first."""
    async with asyncio.timeout(30):
        while len(OPEN) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
    return next(one for one in OPEN if one is not end)


async def soon(happened: asyncio.Event) -> None:
    async with asyncio.timeout(30):
        await happened.wait()


async def test_either_side_may_end_its_half_and_read_on(hands, proxy):
    async with serving(below(proxy, HANDS, Echo)) as port:
        end = await dialled(port, hands)
        said = b"x" * 3_000_000
        end.transport.write(said)
        end.transport.write_eof()
        await soon(end.ended)
        assert bytes(end.got) == said + b"; that was all"
        assert end.lost == []
        end.transport.close()
        await soon(end.gone)


async def test_what_a_half_open_connection_still_brings_is_read(hands, proxy):
    async with serving(below(proxy, HANDS, Recorder)) as port:
        end = await dialled(port, hands)
        end.transport.write_eof()
        server = await other(end)
        await soon(server.ended)
        for number in range(3):
            server.transport.write(f"{number} ".encode() * 50_000)
        server.transport.write_eof()
        await soon(end.ended)
        assert len(end.got) == 300_000


async def test_who_reads_nothing_is_brought_nothing(hands, proxy):
    async with serving(below(proxy, HANDS, Echo)) as port:
        end = await dialled(port, hands)
        end.transport.pause_reading()
        end.transport.write(b"y" * 100_000)
        end.transport.write_eof()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await end.ended.wait()
        assert not end.got
        end.transport.resume_reading()
        await soon(end.ended)
        assert len(end.got) == 100_000 + len("; that was all")


async def test_pause_right_after_reading_went_on_holds(hands, proxy):
    async with serving(below(proxy, HANDS, Echo)) as port:
        end = await dialled(port, hands)
        end.transport.pause_reading()
        end.transport.write(b"z" * 1000)
        end.transport.write_eof()
        end.transport.resume_reading()
        end.transport.pause_reading()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await end.ended.wait()
        assert not end.got
        end.transport.resume_reading()
        await soon(end.ended)
        assert len(end.got) == 1000 + len("; that was all")


async def test_what_is_no_tls_behind_something_that_is_ends_the_connection_alone(hands, proxy):
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    async with serving(below(proxy, HANDS, Recorder)) as port:
        end = await dialled(port, hands)
        server = await other(end)
        link = end.transport._link
        link._tls.write(b"good")
        link.transport.write(link._outgoing.read() + b"\x17\x03\x03\x00\x05never")
        await soon(server.gone)
        server.transport.write(b"too late, and nobody's fault")
        server.transport.write_eof()
    assert isinstance(server.lost[0], ssl.SSLError)
    assert len(server.lost) == 1
    assert faults == []


async def test_nothing_is_kept_of_what_follows_an_end(hands, proxy):
    async with serving(below(proxy, HANDS, Recorder)) as port:
        end = await dialled(port, hands)
        server = await other(end)
        end.transport.write_eof()
        await soon(server.ended)
        link = server.transport._link
        link.data_received(b"junk" * 1000)
        assert link._incoming.pending == 0


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_what_is_written_to_a_closed_connection_is_dropped(hands, proxy, how):
    async with serving(below(proxy, HANDS, Recorder)) as port:
        end = await dialled(port, hands)
        getattr(end.transport, how)()
        end.transport.write(b"late")
        end.transport.write_eof()
        end.transport.close()
        await soon(end.gone)


async def test_connection_that_is_cut_off_is_no_end(hands, proxy):
    async with serving(below(proxy, HANDS, Recorder)) as port:
        end = await dialled(port, hands)
        server = await other(end)
        end.transport._below.write_eof()  # TCP's, without TLS's word for it
        await soon(server.gone)
        assert not server.ended.is_set()
        assert isinstance(server.lost[0], ConnectionError)


async def test_another_service_than_the_vault_proxy_is_not_taken_for_it(certificates, hands):
    posing = Credentials.read(certificates / "brain", "brain").server_context()
    async with serving(below(posing, HANDS, Recorder)) as port:
        with pytest.raises(PeerError, match=r"no TLS with vault-proxy\.drover\.internal"):
            await dialled(port, hands)


async def test_another_caller_than_hands_is_never_served(certificates, proxy):
    brain = Credentials.read(certificates / "brain", "brain").client_context()
    async with serving(below(proxy, HANDS, Recorder)) as port:
        end = await dialled(port, brain)  # in TLS 1.3 a client is judged when it is done
        await soon(end.gone)
    assert [end] == OPEN


@pytest.mark.parametrize("shown", ["nothing", "of another authority", "no TLS"])
async def test_who_shows_no_certificate_of_ours_is_never_served(tmp_path, authority, proxy, shown):
    async with serving(below(proxy, HANDS, Recorder)) as port:
        if shown == "no TLS":
            end = Recorder(half_open=False)
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: end, "127.0.0.1", port
            )
            transport.write(b"GET / HTTP/1.1\r\n\r\n")
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=authority.pem.decode())
            if shown == "of another authority":
                place(tmp_path, authority.pem, Authority.make(NOW).issue("hands", NOW))
                context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
            end = await dialled(port, context)
        await soon(end.gone)
    assert [end] == OPEN


async def test_link_that_nobody_answers_on_is_given_up(monkeypatch, hands):
    monkeypatch.setattr("identity.link.HANDSHAKE_SECONDS", 0.05)
    async with serving(Recorder) as port:
        with pytest.raises(PeerError, match="no handshake"):
            await dialled(port, hands)
