"""A container's input and output as one stream: "attach" over a WebSocket.

RFC 6455; the subprotocols are v5.channel.k8s.io and v4.channel.k8s.io. The first byte of a message
is the channel that it is of: 0 input, 1 output, 2 errors, 3 how it ended; v5 has 255, which closes
the channel that the next byte names.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, Final, cast

from services.hands.backends.kubernetes.errors import ClusterAway, ClusterRefused

if TYPE_CHECKING:
    from services.hands.backends.kubernetes.connection import Endpoint

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_CONTINUATION, _BINARY, _CLOSING, _PING, _PONG = 0, 2, 8, 9, 10
_FINAL, _MASKED = 0x80, 0x80
_LENGTH_2, _LENGTH_8 = 126, 127
_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BUFFER: Final = 256 * 1024
_CHUNK: Final = 32 * 1024
_MAX_FRAME: Final = 8 * 1024 * 1024
_MAX_ANSWER: Final = 65536
_PING_SECONDS: Final = 20.0
_SILENT_PINGS: Final = 3
_SWITCHING: Final = 101


class Channels(asyncio.StreamReaderProtocol):
    """Feeds a reader what the container writes to its standard output.

    Until that has anything, what it writes to its standard error too: that is where whatever could
    not be started says why. `answer` is the server's to the request; `ended` is set at the stream's
    end.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._reader = reader
        self._received = bytearray()
        self._upgraded = False
        self._channel: int | None = None
        self._heard = False
        self._silent = 0
        self._ping: asyncio.TimerHandle | None = None
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the connection."""
        self._raw = cast("asyncio.Transport", transport)  # not a subclass of it in every loop
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Passes on what is the agent's; the reader pauses the transport when it has enough."""
        self._silent = 0
        self._received += data
        if not self._upgraded:
            self._take_answer()
        while self._upgraded and not self.ended.is_set() and self._take_frame():
            pass

    def upgraded(self) -> None:
        """From here on there are frames, some of which may be there."""
        self._upgraded = True
        self._tick()
        self.data_received(b"")

    def send(self, opcode: int, payload: bytes) -> None:
        """Sends a frame, which of a client's is masked."""
        head = bytes((_FINAL | opcode,))
        if len(payload) < _LENGTH_2:
            head += bytes((_MASKED | len(payload),))
        elif len(payload) <= 0xFFFF:  # noqa: PLR2004  # two bytes
            head += bytes((_MASKED | _LENGTH_2,)) + len(payload).to_bytes(2, "big")
        else:
            head += bytes((_MASKED | _LENGTH_8,)) + len(payload).to_bytes(8, "big")
        key = os.urandom(4)
        self._raw.write(head + key + masked(payload, key))

    def eof_received(self) -> None:
        """The server has let go of it."""
        self._end()
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The connection is gone."""
        self._end()
        super().connection_lost(None)  # however it went: what was said before is heard

    def _end(self) -> None:
        self.ended.set()
        if self._ping is not None:
            self._ping.cancel()
        if not self.answer.done():
            self.answer.set_result(bytes(self._received))

    def _take_answer(self) -> None:
        head, separator, body = bytes(self._received).partition(b"\r\n\r\n")
        if not separator and len(self._received) < _MAX_ANSWER:
            return
        if status_of(head) == _SWITCHING:
            del self._received[: len(head) + len(separator)]
        elif len(body) < min(_length_of(head), _MAX_ANSWER):
            return
        if not self.answer.done():
            self.answer.set_result(head + separator + body)

    def _take_frame(self) -> bool:
        """Takes one frame off what was received; False if there is no whole one."""
        received = self._received
        if len(received) < 2:  # noqa: PLR2004  # the shortest head
            return False
        length, start = received[1] & 0x7F, 2
        if length >= _LENGTH_2:
            size = 2 if length == _LENGTH_2 else 8
            if len(received) < start + size:
                return False
            length, start = int.from_bytes(received[2 : 2 + size], "big"), 2 + size
        if length > _MAX_FRAME or received[1] & _MASKED:
            self._raw.abort()  # no server's
            return False
        if len(received) < start + length:
            return False
        opcode, payload = received[0] & 0x0F, bytes(received[start : start + length])
        del received[: start + length]
        self._take(opcode, payload)
        return True

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self.send(_PONG, payload)
        elif opcode == _CLOSING:
            self._end()
            self._reader.feed_eof()
            self._raw.close()
        elif opcode != _PONG and payload:
            if opcode != _CONTINUATION:
                self._channel, payload = payload[0], payload[1:]
            self._deliver(payload)

    def _deliver(self, payload: bytes) -> None:
        wanted = self._channel == _STDOUT or (self._channel == _STDERR and not self._heard)
        if payload and wanted:
            self._heard = self._heard or self._channel == _STDOUT
            self._reader.feed_data(payload)

    def _tick(self) -> None:
        """Asks whether the server is there: middlemen cut a connection that is silent for long."""
        if self.ended.is_set():
            return
        if self._silent >= _SILENT_PINGS and self._raw.is_reading():
            self._raw.abort()
            return
        self._silent += 1
        self.send(_PING, b"")
        self._ping = asyncio.get_running_loop().call_later(_PING_SECONDS, self._tick)


class Input(asyncio.Transport):
    """The way to the container's standard input."""

    def __init__(self, raw: asyncio.Transport, channels: Channels, protocol: str) -> None:
        super().__init__()
        self._raw = raw
        self._channels = channels
        self._protocol = protocol

    def write(self, data: Any) -> None:  # noqa: ANN401  # whatever is bytes
        """Sends it, in pieces that any server takes."""
        view = memoryview(data)
        for start in range(0, len(view), _CHUNK):
            piece = bytes(view[start : start + _CHUNK])
            self._channels.send(_BINARY, bytes((_STDIN,)) + piece)

    def close(self) -> None:
        """Ends the input, and with it the connection."""
        if not self._raw.is_closing():
            if self._protocol == PROTOCOLS[0]:
                self._channels.send(_BINARY, bytes((_CLOSE, _STDIN)))
            self._channels.send(_CLOSING, (1000).to_bytes(2, "big"))
        self._raw.close()

    def abort(self) -> None:
        """Ends the connection."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether it has been closed."""
        return self._raw.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        """What the connection is."""
        return self._raw.get_extra_info(name, default)


async def opened(
    endpoint: Endpoint, path: str, *, seconds: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Channels]:
    """Attaches. Raises `ClusterAway` and `ClusterRefused`."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_BUFFER, loop=loop)
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(seconds):
            transport, channels = await loop.create_connection(
                lambda: Channels(reader),
                endpoint.host,
                endpoint.port,
                ssl=endpoint.context,
                server_hostname=endpoint.server_name if endpoint.context else None,
            )
            key = base64.b64encode(os.urandom(16)).decode()
            transport.write(_request(endpoint, path, key))
            protocol = _check(await channels.answer, key)
            channels.upgraded()
    except BaseException as error:
        if transport is not None:
            transport.abort()
        if isinstance(error, TimeoutError):
            text = f"the API server did not attach to a pod in {seconds:g} s"
            raise ClusterAway(text) from error
        if isinstance(error, OSError):
            raise ClusterAway("the API server does not answer: nobody is attached") from error
        raise
    way = Input(transport, channels, protocol)
    return reader, asyncio.StreamWriter(way, channels, reader, loop), channels


def masked(payload: bytes, key: bytes) -> bytes:
    """A payload under a key of four bytes; the same again gives it back."""
    size = len(payload)
    over = (key * (size // 4 + 1))[:size]
    number = int.from_bytes(payload, "big") ^ int.from_bytes(over, "big")
    return number.to_bytes(size, "big")


def accepted(key: str) -> str:
    """What a server says to a key, so that it is known to be one."""
    digest = hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def status_of(head: bytes) -> int:
    """An HTTP answer's status; 0 for what is none."""
    words = head.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def _request(endpoint: Endpoint, path: str, key: str) -> bytes:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    headers = {
        **endpoint.headers,
        "Host": f"{host}:{endpoint.port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Protocol": ", ".join(PROTOCOLS),
    }
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    return f"GET {endpoint.prefix}{path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


def _check(answer: bytes, key: str) -> str:
    """The subprotocol that the server chose."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, headers = status_of(head), _headers(head)
    if status != _SWITCHING:
        if not status:
            raise ClusterAway("the API server let go of a connection: nobody is attached")
        raise ClusterRefused(f"the cluster attaches nobody: {_message(body, status)}", status)
    protocol = headers.get("sec-websocket-protocol", "")
    if headers.get("sec-websocket-accept") != accepted(key) or protocol not in PROTOCOLS:
        raise ClusterRefused("the cluster attaches nobody by a protocol that is known", status)
    return protocol


def _message(body: bytes, status: int) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:500].decode("utf-8", "replace").strip() or f"HTTP status {status}"


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _length_of(head: bytes) -> int:
    length = _headers(head).get("content-length", "")
    return int(length) if length.isdigit() else 0
