"""The server name in a client's hello, whatever the pieces in which it comes."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.vault_proxy.domain.refusal import RefusedError
from services.vault_proxy.proxy.hello import Hello, read_hello
from services.vault_proxy.proxy.wire import LateError, LostError, Wire


def _sent(name: str | None) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return out.read()


async def _read(pieces: list[bytes]) -> tuple[Hello, bytes]:
    wire, loop = Wire(), asyncio.get_running_loop()
    for piece in pieces:
        loop.call_soon(wire.data_received, piece)
    loop.call_soon(wire.eof_received)
    hello = await read_hello(wire, loop.time() + 30)
    while await wire.more(loop.time() + 30):
        pass
    return hello, bytes(wire.waiting)


@pytest.mark.parametrize("name", ["allowed.example", None, "a" * 60 + ".example"])
@pytest.mark.parametrize("size", [1, 5, 100, 10_000])
async def test_the_name_is_found_and_no_byte_is_taken(name: str | None, size: int) -> None:
    sent = _sent(name)
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    assert await _read(pieces) == (Hello(name, encrypted=False), sent)


async def test_a_hello_in_several_records_is_one_hello() -> None:
    sent = _sent("allowed.example")
    message, records = sent[5:], b""
    for at in range(0, len(message), 7):
        part = message[at : at + 7]
        records += b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part
    hello, _ = await _read([records])
    assert hello.name == "allowed.example"


async def test_an_encrypted_name_is_seen_to_be_there() -> None:
    sent = _sent("allowed.example")
    extension = b"\xfe\x0d\x00\x01\x00"
    body = bytearray(sent[9:])
    at = 34
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2], "big")
    at += 1 + body[at]
    length = int.from_bytes(body[at : at + 2], "big") + len(extension)
    body[at : at + 2] = length.to_bytes(2, "big")
    message = b"\x01" + (len(body) + len(extension)).to_bytes(3, "big") + body + extension
    record = b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message
    hello, _ = await _read([record])
    assert hello == Hello("allowed.example", encrypted=True)


@pytest.mark.parametrize(
    "sent", [b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n", b"\x16\x02", b"\x16\x03\x01\xff\xff", b"\x17"]
)
async def test_what_is_no_hello_is_refused_at_once(sent: bytes) -> None:
    with pytest.raises(RefusedError):
        await _read([sent])


_HELLO = _sent("allowed.example")


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, len(_HELLO) - 1), st.binary(max_size=3)), max_size=4))
def test_a_damaged_hello_is_read_or_refused_and_nothing_else(
    changes: list[tuple[int, bytes]],
) -> None:
    sent = _HELLO
    for at, change in changes:
        sent = sent[:at] + change + sent[at + 1 :]
    try:
        hello, _ = asyncio.run(_read([sent]))
    except (RefusedError, LostError, LateError):
        return
    assert hello.name is None or len(hello.name) < 20_000
