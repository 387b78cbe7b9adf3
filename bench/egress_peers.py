"""The processes beside the proxy that R8 measures: servers, and a bare hop that puts a header in.

`python -m bench.egress_peers ROLE FOLDER [PORT]` prints where it listens once it does. FOLDER has
the servers' certificate.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import uvloop

HOST: Final = "localhost"
VALUE: Final = "sk-" + "v" * 40
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


async def _serve(role: str, folder: Path, ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    if role == "hop":
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


def main() -> None:
    """Serves until it is ended."""
    role, folder, *ports = sys.argv[1:]
    uvloop.run(_serve(role, Path(folder), [int(port) for port in ports]))


if __name__ == "__main__":
    main()
