"""Heads of requests and answers: what is accepted means the same to h11, which is not ours."""

from __future__ import annotations

import asyncio
import re

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.vault_proxy.domain.refusal import RefusedError
from services.vault_proxy.proxy import parse
from services.vault_proxy.proxy.body import Chunked
from services.vault_proxy.proxy.wire import LateError, LostError, Wire

_NASTY = st.sampled_from(
    [
        *(
            b"",
            b" ",
            b"\t",
            b"\n",
            b"\r",
            b"\r\n ",
            b"\n\r",
            b"\r\r\n",
            b"\x00",
            b"\x7f",
            b"\x80\xff",
        ),
        *(b":", b" :", b"\xb2", b"Host", b"X Y", b"X_Y", b"Transfer-Encoding: chunked\r\n"),
        *(b"Content-Length: 7\r\n", b"+5", b"-1", b"0x5", b"5, 5", b"9" * 30, b"gzip, chunked"),
        *(
            b"chunked, chunked",
            b"identity",
            b"h2c",
            b"get / HTTP/1.1",
            b"GET  / HTTP/1.1",
            b"GET /",
        ),
        *(
            b"GET /a b HTTP/1.1",
            b"GET / HTTP/2.0",
            b"GET /\xff HTTP/1.1",
            b"PRI * HTTP/2.0",
            b"0;x",
        ),
    ]
)
"""What is put in one place or two of a message that was good before."""
_LINES = st.sampled_from(
    [
        *(
            b"GET / HTTP/1.1",
            b"POST http://h/x HTTP/1.1",
            b"GET /?q=1 HTTP/1.0",
            b"PUT /x HTTP/1.1",
        ),
        b"CONNECT h:443 HTTP/1.1",
        b"M-SEARCH * HTTP/1.1",
    ]
)
_FIELD = st.sampled_from(
    [
        *(
            (b"Host", b"h"),
            (b"Content-Length", b"5"),
            (b"content-length", b"0"),
            (b"X-Own", b"a b"),
        ),
        *((b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"Chunked"), (b"TE", b"gzip")),
        *(
            (b"Connection", b"close"),
            (b"Connection", b"Keep-Alive, x-own"),
            (b"X-Own", b"\tx\xe9 "),
        ),
        *((b"Expect", b"100-continue"), (b"Upgrade", b"websocket"), (b"X-Other", b"x:y")),
    ]
)


def _mutated(pieces: list[bytes], changes: list[tuple[int, bytes]]) -> bytes:
    for at, nasty in changes:
        pieces[at % len(pieces)] = nasty
    return b"".join(pieces)


def _head(
    line: bytes, fields: list[tuple[bytes, bytes]], changes: list[tuple[int, bytes]]
) -> bytes:
    pieces = [line, b"\r\n"]
    for name, value in fields:
        pieces += [name, b": ", value, b"\r\n"]
    return _mutated(pieces, changes) + b"\r\n"


_CHANGES = st.lists(st.tuples(st.integers(0, 60), _NASTY), max_size=2)
_HEADS = st.builds(_head, _LINES, st.lists(_FIELD, max_size=5, unique=True), _CHANGES).filter(
    # what the connection hands over: all up to the first empty line
    lambda head: head.find(b"\r\n\r\n") == len(head) - 4
)


@given(_HEADS)
def test_an_accepted_request_is_accepted_by_h11_and_means_the_same(head: bytes) -> None:
    try:
        ours = parse.request(head)
    except RefusedError:
        return
    connection = h11.Connection(h11.SERVER)
    if ours.host is None:  # as HTTP/1.0 and a CONNECT of some clients have none
        head = head[:-2] + b"Host: h\r\n\r\n"
    connection.receive_data(head)
    theirs = connection.next_event()
    assert isinstance(theirs, h11.Request)
    assert theirs.method == ours.method.encode()
    assert theirs.target == ours.target.encode()
    assert theirs.http_version == b"1.%d" % ours.minor
    fields = theirs.headers.raw_items()
    passed = [(name.lower(), value) for name, value in ours.fields]
    named = {
        token.strip(b" \t").lower()
        for name, value in fields
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    expected = [(name.lower(), bytes(value)) for name, value in fields]
    assert passed == [
        one for one in expected if one[0] not in parse.LOOKED_AT and one[0] not in named
    ]
    if ours.method == "CONNECT":
        return  # with a body it is refused by who opens tunnels
    assert isinstance(connection.next_event(), h11.EndOfMessage) is not ours.has_body


@given(_HEADS.map(lambda head: re.sub(rb"\A[^\r\n]*(1\.[01])", rb"HTTP/\1 200 OK", head)))
@example(b"HTTP/1.1 200\r\nContent-Length: 3\r\n\r\n")
@example(b"HTTP/1.0 404 Not \xe9\r\n\r\n")
def test_an_accepted_answer_is_accepted_by_h11_and_means_the_same(head: bytes) -> None:
    try:
        ours = parse.response(head)
    except RefusedError:
        return
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(head)
    theirs = connection.next_event()
    assert isinstance(theirs, h11.Response)
    assert (theirs.status_code, theirs.reason) == (ours.status, ours.reason)
    lengths = [int(value) for name, value in theirs.headers if name == b"content-length"]
    assert ([ours.length] if ours.length is not None else []) == lengths
    assert ours.chunked == any(name == b"transfer-encoding" for name, _ in theirs.headers)


_CHUNKS = st.builds(
    lambda bodies, last, changes: _mutated(
        [piece for body in bodies for piece in (b"%x" % len(body), b"\r\n", body, b"\r\n")]
        + [b"0", b"\r\n", b"\r\n", last],
        changes,
    ),
    st.lists(st.binary(min_size=1, max_size=20), max_size=4),
    st.sampled_from([b"", b"GET / HTTP/1.1\r\n"]),
    _CHANGES,
)


@given(_CHUNKS, st.integers(1, 40))
def test_an_accepted_chunked_body_is_accepted_by_h11_and_means_the_same(
    sent: bytes, piece: int
) -> None:
    try:
        ours, left = asyncio.run(_chunked(sent, piece))
    except (RefusedError, LostError, LateError):
        return
    connection = h11.Connection(h11.SERVER)
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.receive_data(head + sent)
    connection.next_event()
    theirs = b""
    while isinstance(event := connection.next_event(), h11.Data):
        theirs += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert (theirs, connection.trailing_data[0]) == (ours, left)


async def _chunked(sent: bytes, piece: int) -> tuple[bytes, bytes]:
    wire = Wire()
    loop = asyncio.get_running_loop()
    body, seen = Chunked(wire, strict=True), b""
    for at in range(0, len(sent), piece):
        loop.call_soon(wire.data_received, sent[at : at + piece])
    loop.call_soon(wire.eof_received)
    while got := await body.read(loop.time() + 30):
        seen += got
    for _ in range(len(sent)):  # all that was sent has come
        await asyncio.sleep(0)
    return seen, bytes(wire.waiting)


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "more than one Host"),
        (b"GET / HTTP/1.1\r\nConnection: host\r\nHost: a\r\n\r\n", "no hop may take away"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", "100-continue"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n", "websocket"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", "Connection: upgrade"),
        (b"GET /" + b"a" * 17_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", "longer than"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 129 + b"\r\n", "more than 128 fields"),
        (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"),
    ],
)
def test_a_refusal_names_what_is_wrong(head: bytes, says: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parse.request(head)
    assert says in refused.value.refusal.message
    assert 400 <= refused.value.refusal.status < 500


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET /\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"\r\n",
        b"\n",
        b"SSH-2.0-x\r\n",
        b"PRI * HTTP/2.0\r\n",
    ],
)
def test_what_can_be_no_head_is_refused_before_its_end(beginning: bytes) -> None:
    for end in range(1, len(beginning) + 1):
        for seen in range(end):
            if seen and _refused(beginning[:seen], 0):
                break
        else:
            continue
        return
    assert _refused(beginning, 0)


def _refused(beginning: bytes, seen: int) -> bool:
    try:
        parse.suspicious(bytearray(beginning), seen)
    except RefusedError:
        return True
    return False


def test_a_head_of_spaces_is_read_in_time_that_grows_with_its_length() -> None:
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX:" + b" \t" * 30_000 + b"\x01\r\n\r\n"
    with pytest.raises(RefusedError):
        parse.request(head)
