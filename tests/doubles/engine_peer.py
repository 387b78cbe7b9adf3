"""An engine that does nothing, and remembers each byte that it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11

from services.engine_proxy.domain.container import MASKED, READ_ONLY
from services.engine_proxy.main import EngineProxySettings, build

OURS = "a" * 64
OTHERS = "b" * 64
"""Ids of two containers: one that the proxy has made, and somebody's."""
LAYER = "sha256:" + "c" * 64
OTHERS_LAYER = "drover-packages-ffffffffffff:other"
OWN_VOLUME = "hands"
PLACE = "/var/lib/docker/volumes/hands/_data"

_UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

Answer = tuple[int, Any]


@dataclass
class Peer:
    """Behind the proxy. `asked` has the requests, as they were read, and `bodies` theirs."""

    api_version: str = "1.41"
    asked: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    identity: str = ""
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)
    held: asyncio.Event | None = None
    """Where it is set, waiting for a container lasts until then."""
    left: int = 0
    """How many waits were given up by who had asked."""

    @property
    def passed(self) -> list[str]:
        """What it was asked beside what the proxy asks for itself."""
        own = (
            "GET /version",
            f"GET /volumes/{OWN_VOLUME}",
            f"GET /v{self.api_version}/containers/",
        )
        return [line for line in self.asked if not line.startswith(own)]

    def labelled(self, **labels: str) -> dict[str, Any]:
        return {"Config": {"Labels": labels}}

    def answer(self, method: str, path: str) -> Answer:
        path = path.partition("?")[0].removeprefix(f"/v{self.api_version}")
        ours = {"drover.proxy": self.identity}
        told: dict[str, Any] = {
            "/version": {"ApiVersion": self.api_version, "Version": "26.1"},
            f"/volumes/{OWN_VOLUME}": {"Name": OWN_VOLUME, "Mountpoint": PLACE},
            "/info": {"OSType": "linux", "NCPU": 2, "Name": "host", "HttpProxy": "http://u:p@x"},
            f"/containers/{OURS}/json": {"Id": OURS, **self.labelled(**ours)},
            "/containers/drover-ours/json": {"Id": OURS, **self.labelled(**ours)},
            f"/containers/{OTHERS}/json": {"Id": OTHERS, **self.labelled(other="1")},
            "/containers/postgres/json": {"Id": OTHERS, **self.labelled()},
            f"/images/{OTHERS_LAYER}/json": self.labelled(**{"drover.proxy.layer": "another"}),
            f"/images/{LAYER}/json": {
                "Id": LAYER,
                "RepoTags": ["drover-packages-0123456789ab:key"],
                **self.labelled(**{"drover.proxy.layer": self.identity}),
            },
        }
        if method == "POST" and path == "/containers/create":
            return 201, {"Id": OURS, "Warnings": []}
        if method == "GET" and path not in told and path not in {"/_ping", "/events"}:
            if path.endswith("s/json") and path.count("/") == 2:
                return 200, []
            return 404, {"message": "No such thing"}
        return 200, told.get(path, {"asked": path})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conn, body = h11.Connection(h11.SERVER), b""
        line = ""
        while True:
            event = conn.next_event()
            if event is h11.NEED_DATA:
                conn.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                line = f"{event.method.decode()} {event.target.decode()}"
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                break
        if line:
            self.asked.append(line)
            self.bodies.append(body)
            if "/attach" in line:
                writer.write(_UPGRADED)
                self.streams.append((reader, writer))
                return
            await self._answer(line, conn, reader, writer)
        writer.close()

    async def _answer(
        self,
        line: str,
        conn: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        method, _, target = line.partition(" ")
        if "/wait" in target and self.held is not None:
            held = asyncio.ensure_future(self.held.wait())
            gone = asyncio.ensure_future(reader.read())
            await asyncio.wait({held, gone}, return_when=asyncio.FIRST_COMPLETED)
            self.left += gone.done()
            held.cancel()
            gone.cancel()
        status, told = self.answer(method, target)
        text = json.dumps(told).encode()
        head = h11.Response(
            status_code=status,
            headers=[("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")],
        )
        writer.write(conn.send(head) or b"")
        writer.write(conn.send(h11.Data(data=text)) or b"")
        writer.write(conn.send(h11.EndOfMessage()) or b"")
        await writer.drain()


@asynccontextmanager
async def proxied(peer: Peer, directory: Path, **settings: Any) -> AsyncIterator[Path]:
    """The real proxy before it; where it listens."""
    server = await asyncio.start_unix_server(peer.serve, directory / "engine")
    given = {
        "engine_listen": f"unix:{directory}/proxy",
        "engine_socket": directory / "engine",
        "engine_data_volume": OWN_VOLUME,
        **settings,
    }
    async with server, AsyncExitStack() as stack:
        peer.identity = await build(EngineProxySettings(**given), stack)
        yield directory / "proxy"
        for _, writer in peer.streams:
            writer.close()


async def raw(proxy: Path, sent: bytes) -> bytes:
    """What comes back for some bytes, until the proxy closes or waits for more."""
    reader, writer = await asyncio.open_unix_connection(proxy)
    writer.write(sent)
    writer.write_eof()
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


class Client:
    """One connection to the proxy, as the hands' HTTP client keeps it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._conn = h11.Connection(h11.CLIENT)

    async def ask(self, method: str, target: str, body: Any = None) -> Answer:
        """Status and JSON of an answer."""
        data = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        headers = [("Host", "docker"), ("Content-Length", str(len(data)))]
        self.send(h11.Request(method=method, target=target, headers=headers))
        self.send(h11.Data(data=data))
        self.send(h11.EndOfMessage())
        status, text = 0, b""
        async with asyncio.timeout(30):
            while True:
                event = self._conn.next_event()
                if event is h11.NEED_DATA:
                    self._conn.receive_data(await self.reader.read(65536))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    text += bytes(event.data)
                else:
                    break
        assert isinstance(event, h11.EndOfMessage), event
        if self._conn.our_state is h11.DONE:
            self._conn.start_next_cycle()
        return status, json.loads(text or b"null")

    def send(self, event: Any) -> None:
        self.writer.write(self._conn.send(event) or b"")


@asynccontextmanager
async def client_of(proxy: Path) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_unix_connection(proxy)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def sandbox(**host: Any) -> dict[str, Any]:
    """The body of a container that is a sandbox; more of its host's configuration by name."""
    return {
        "Image": "drover/sandbox",
        "User": "200001:200001",
        "Healthcheck": {"Test": ["NONE"]},
        "NetworkDisabled": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Labels": {"drover.hand": "hand_1"},
        "HostConfig": {
            "NetworkMode": "none",
            "Privileged": False,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "ReadonlyRootfs": True,
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "MaskedPaths": sorted(MASKED),
            "ReadonlyPaths": sorted(READ_ONLY),
            "PidsLimit": 64,
            "Memory": 1 << 29,
            "NanoCpus": 10**9,
            "ShmSize": 1 << 20,
            "Tmpfs": {"/scratch": "rw,exec,nosuid,nodev,size=1024,mode=1777"},
            "Mounts": [mount(f"{PLACE}/s/workspace", "/workspace", read_only=False)],
            "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
            "LogConfig": {"Type": "none", "Config": {}},
            "RestartPolicy": {"Name": "no"},
            "Init": False,
            **host,
        },
    }


def mount(source: str, target: str = "/x", *, read_only: bool = True) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
