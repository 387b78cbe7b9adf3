"""An API server of our own: real HTTP, recorded schemas, selectors, watches, and faults on demand.

What it holds is in memory; its one node runs each pod as real processes.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from services.hands.backends.cgroup import ControlGroups
from tests.doubles import kubernetes_rules as rules
from tests.doubles import kubernetes_socket as socket
from tests.doubles.kubernetes_objects import Objects, Refusal

TOKEN = "of-the-test"  # noqa: S105  # opens nothing
_ROUTE = re.compile(
    r"/(?:api/v1|apis/networking\.k8s\.io/v1)/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?"
)
_VERSION = (
    *("major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion"),
    *("compiler", "platform"),
)
_SCHEMAS = {"pods": "Pod", "networkpolicies": "NetworkPolicy"}


@dataclass
class Fault:
    """What becomes of some requests. `times` is how often; `status` 0 lets go, -1 never answers."""

    method: str
    path: str
    status: int
    reason: str = ""
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1_000_000
    after: bool = False
    """Done all the same, before it is told otherwise."""


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: dict[str, Any]


class ApiServer(Objects):
    """The server. Everything of it happens in one event loop."""

    def __init__(self, claims: dict[str, Path], groups: ControlGroups) -> None:
        super().__init__(claims, groups)
        self.version = "v1.33.1"
        self.protocols = ["v5.channel.k8s.io", "v4.channel.k8s.io"]
        self.denied: set[tuple[str, str]] = set()
        self.faults: list[Fault] = []
        self.mutations: list[Callable[[dict[str, Any]], None]] = []
        self.requests: list[Request] = []
        self.sockets: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.context: ssl.SSLContext | None = None

    def cut(self) -> None:
        """Lets go of every stream of a pod."""
        for writer in self.sockets:
            writer.transport.abort()

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self.context
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As when the server's process dies: what runs on the node goes on."""
        if self._server is not None:
            self._server.close()
        for writer in [*self._connections]:
            writer.transport.abort()

    async def close(self) -> None:
        await self.stop()
        for container in self.containers.values():
            container.kill()
        left = {*self.tasks, *self._serving} - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass
        finally:
            self._serving.discard(task)
            self._connections.discard(writer)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        url = urlsplit(target)
        query = dict(parse_qsl(url.query))
        request = Request(method, url.path, query, headers, json.loads(data) if data else {})
        self.requests.append(request)
        fault = self._fault(request)
        if fault is not None and not fault.after:
            return await self._fail(fault, writer)
        try:
            _check(headers)
            if headers.get("upgrade") == "websocket":
                await self._attach(request, reader, writer)
                return False
            if query.get("watch") == "true":
                await self._watch(request, writer)
                return False
            status, answer = self._answer(request)
        except Refusal as refusal:
            status = refusal.status
            answer = {
                "kind": "Status",
                "status": "Failure",
                "code": status,
                "reason": refusal.reason,
                "message": refusal.message,
            }
        if fault is not None:
            return await self._fail(fault, writer)
        await self._send(writer, status, answer, {})
        return True

    def _fault(self, request: Request) -> Fault | None:
        for fault in self.faults:
            if fault.times and fault.method == request.method:
                target = request.path + ("?watch" if "watch" in request.query else "")
                if re.search(fault.path, target):
                    fault.times -= 1
                    return fault
        return None

    async def _fail(self, fault: Fault, writer: asyncio.StreamWriter) -> bool:
        if fault.status == -1:
            await asyncio.Event().wait()
        if fault.status > 0:
            answer = {"kind": "Status", "reason": fault.reason, "message": fault.message}
            await self._send(writer, fault.status, answer, fault.headers)
        return fault.status > 0

    async def _send(
        self, writer: asyncio.StreamWriter, status: int, answer: Any, headers: dict[str, str]
    ) -> None:
        body = json.dumps(answer).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{more}"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await writer.drain()

    def _answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        if request.path.rstrip("/") == "/version":
            return 200, {**dict.fromkeys(_VERSION, "x"), "gitVersion": self.version}
        if request.path.endswith("/selfsubjectaccessreviews"):
            return 201, self._review(request.body)
        if namespaces := re.fullmatch(r"/api/v1/namespaces/([^/]+)", request.path):
            return 200, self._found("namespaces", "", namespaces[1])
        route = _ROUTE.fullmatch(request.path)
        if route is None or route[4]:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        namespace, resource, name, _ = route.groups()
        if request.method == "POST":
            return 201, self._create(resource, namespace, request)
        if name is None:
            return 200, self._list(resource, namespace, request.query)
        found = self._found(resource, namespace, name)
        if request.method == "DELETE":
            self.delete(found, int(request.query.get("gracePeriodSeconds", 30)))
        return 200, found

    def _review(self, asked: dict[str, Any]) -> dict[str, Any]:
        if wrong := rules.unknown("SelfSubjectAccessReview", asked):
            raise Refusal(400, "BadRequest", "; ".join(wrong))
        wanted = asked["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (wanted["resource"], wanted.get("subresource"))))
        denied = (wanted["verb"], resource) in self.denied
        return {**asked, "status": {"allowed": not denied}}

    def _list(self, resource: str, namespace: str, query: dict[str, str]) -> dict[str, Any]:
        items = [
            made
            for (what, where, _), made in self.objects.items()
            if (what, where) == (resource, namespace) and _selected(made, query)
        ]
        return {"kind": "List", "metadata": {"resourceVersion": self.now()}, "items": items}

    def _found(self, resource: str, namespace: str, name: str) -> dict[str, Any]:
        try:
            return self.objects[resource, namespace, name]
        except KeyError:
            text = f'{resource} "{name}" not found'
            raise Refusal(404, "NotFound", text) from None

    def _create(self, resource: str, namespace: str, request: Request) -> dict[str, Any]:
        made = request.body
        wrong = rules.unknown(_SCHEMAS[resource], made)
        if wrong and request.query.get("fieldValidation") == "Strict":
            raise Refusal(400, "BadRequest", f"strict decoding error: {'; '.join(wrong)}")
        if wrong := rules.amiss(made):
            raise Refusal(422, "Invalid", f"{made['kind']} is invalid: {'; '.join(wrong)}")
        if resource == "pods":
            rules.admitted(made)
            for mutate in self.mutations:
                mutate(made)
            made["status"] = {"phase": "Pending"}
        self.put(resource, namespace, made)
        if resource == "pods":
            self.begin(made)
        return made

    async def _watch(self, request: Request, writer: asyncio.StreamWriter) -> None:
        since = int(request.query.get("resourceVersion") or 0)
        if since < self.oldest:
            raise Refusal(410, "Expired", f"too old resource version: {since}")
        changes: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        for number, kind, what in self.history:
            if number > since:
                changes.put_nowait((kind, what))
        self.watches.add(changes)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            async with asyncio.timeout(int(request.query.get("timeoutSeconds", 60))):
                async for kind, what in _until_error(changes):
                    if kind == "ERROR" or _selected(what, request.query):
                        line = json.dumps({"type": kind, "object": what}).encode() + b"\n"
                        writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                        await writer.drain()
        except TimeoutError:
            pass
        finally:
            self.watches.discard(changes)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _attach(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        route = _ROUTE.fullmatch(request.path)
        if route is None or route[4] != "attach":
            raise Refusal(404, "NotFound", "nothing to attach to")
        self._found("pods", route[1], route[3])
        container = self.containers.get(route[3])
        if container is None:
            raise Refusal(400, "BadRequest", "container sandbox is not running")
        offered = [name.strip() for name in request.headers["sec-websocket-protocol"].split(",")]
        protocol = next((name for name in self.protocols if name in offered), None)
        if protocol is None or request.query.get("stdin") != "true":
            raise Refusal(400, "BadRequest", "unable to upgrade: no protocol")
        writer.write(socket.accepting(request.headers["sec-websocket-key"], protocol))
        heard: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(64)
        container.attached = heard
        self.sockets.add(writer)
        try:
            await socket.serve(reader, writer, container.process, protocol, heard)
        finally:
            self.sockets.discard(writer)
            container.attached = None
            while not heard.empty():  # nobody listens any more, and it must not wait
                heard.get_nowait()
            container.close_input()  # stdinOnce


def _check(headers: dict[str, str]) -> None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if (scheme.lower(), token) != ("bearer", TOKEN):
        raise Refusal(401, "Unauthorized", "Unauthorized")


async def _until_error(
    changes: asyncio.Queue[tuple[str, dict[str, Any]]],
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    while True:
        change = await changes.get()
        yield change
        if change[0] == "ERROR":
            return


def _selected(made: dict[str, Any], query: dict[str, str]) -> bool:
    labels = made["metadata"].get("labels", {})
    fields = {"involvedObject.name": made.get("involvedObject", {}).get("name")}
    fields["type"] = made.get("type")
    return _match(query.get("labelSelector", ""), labels) and _match(
        query.get("fieldSelector", ""), fields
    )


def _match(selector: str, has: Mapping[str, object]) -> bool:
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    return all(has.get(name) == value for name, value in wanted.items())
