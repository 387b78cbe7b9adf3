"""Asks any method of any service for a workspace, in the words of the HTTP API where it has some.

What comes back is told in one form, in which ids have been replaced by what they are of: so that
two answers can be compared that are about different things.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

import drover
from chassis.context import WORKSPACE_KEY
from chassis.grpc.status import from_rpc_error
from gateway.services import SERVED
from gateway.transcode.routes import Contract, Kind, Route
from identity.table import Caller, callers

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

    from tests.e2e.stack import Stack

Ids = dict[str, str]

SECONDS: Final = 15.0
PROCESSES: Final[Mapping[str, str]] = {
    "drover.brain": "brain-1",
    "drover.hands": "hands",
    "drover.session": "session",
    "drover.work": "session",
    "drover.vault": "vault_proxy",
}
"""By the beginning of a service's name, which process has it; all else is the registry's."""


@cache
def methods() -> Mapping[str, MethodDescriptor]:
    """Every method of every service of the contract, by its name and its service's."""
    root = Path(next(iter(drover.__path__)))
    found = {}
    for file in sorted(root.rglob("*_pb2.py")):
        name = ".".join(file.relative_to(root.parent).with_suffix("").parts)
        services = importlib.import_module(name).DESCRIPTOR.services_by_name
        for service in services.values():
            for method in service.methods:
                found[f"{service.name}.{method.name}"] = method
    return found


@cache
def routes() -> Mapping[str, Route]:
    """The route of each method that has one, as `methods` names them."""
    contract = Contract(SERVED)
    return {
        f"{route.method.containing_service.name}.{route.method.name}": route
        for route in contract.routes
        if not route.additional
    }


@dataclass(frozen=True)
class Ask:
    """A request to a method, as `methods` names it: ids stand in it as `{agent_id}`.

    Of a method with a route its path has them, and `query`, `body` and `pieces` are what a client
    sends beside; of all others `body` is the message, or its first. `at` says which id is meant by
    a part of the path, where it is not the one of the same name.
    """

    method: str
    body: Any = None
    query: str = ""
    pieces: tuple[Any, ...] = ()
    at: Mapping[str, str] = field(default_factory=dict)

    @property
    def route(self) -> Route | None:
        """Its route."""
        return routes().get(self.method)

    @property
    def names(self) -> list[str]:
        """The ids that it needs."""
        text = f"{self.query} {json.dumps(self.body)}"
        beside = [name for name in KINDS if f"{{{name}}}" in text and name != NEW]
        return list(dict.fromkeys([*self.in_path, *beside]))

    @property
    def in_path(self) -> list[str]:
        """Those of them that its path has."""
        path = () if self.route is None else self.route.request.path
        return [self.at.get(name, name) for name in path]

    def messages(self, ids: Mapping[str, str]) -> Iterator[Message]:
        """What is sent."""
        body, route = filled(self.body, ids), self.route
        if route is None:
            made = GetMessageClass(methods()[self.method].input_type)()
            yield json_format.ParseDict(body or {}, made)
            return
        path = {name: ids[self.at.get(name, name)] for name in route.request.path}
        text = b"" if body is None else json.dumps(body).encode()
        query = filled(self.query, ids).encode()
        message = route.request.decode(path, query, {}, text)
        if route.kind is not Kind.UPLOAD:
            yield message
            return
        part: Any = GetMessageClass(route.method.input_type)
        json_format.ParseDict({"filename": "a.txt"}, message, ignore_unknown_fields=True)
        yield part(header=message)
        for piece in self.pieces:
            yield part(**piece)
        yield part(complete=True)


def filled(template: Any, ids: Mapping[str, str]) -> Any:
    """A template with the ids in their places."""
    if isinstance(template, str):
        for name in KINDS:
            if f"{{{name}}}" in template:
                template = template.replace(f"{{{name}}}", ids[name])
        return template
    if isinstance(template, dict):
        return {name: filled(value, ids) for name, value in template.items()}
    if isinstance(template, list):
        return [filled(value, ids) for value in template]
    return template


NEW: Final = "copy_id"
"""What is the caller's to choose, and of nothing yet."""

KINDS: Final[Mapping[str, str]] = {
    "agent_id": "agent",
    "api_key_id": "apikey",
    "copy_id": "file",
    "credential_id": "vcrd",
    "environment_id": "env",
    "event_id": "sevt",
    "farm_id": "env",
    "farm_session_id": "sesn",
    "file_id": "file",
    "grant": "grant",
    "key_id": "envkey",
    "memory_id": "mem",
    "memory_store_id": "memstore",
    "memory_version_id": "memver",
    "output_id": "file",
    "repository_id": "sesrsc",
    "resource_id": "sesrsc",
    "session_id": "sesn",
    "skill_id": "skill",
    "thread_id": "sthr",
    "vault_id": "vlt",
    "version": "skver",
    "work_id": "work",
}
"""What a request may name: by the names that the contract has for it, with its ids' prefix."""


@dataclass(frozen=True)
class Told:
    """An answer: a status, and what was said."""

    status: str
    text: str
    message: Any = field(default=None, compare=False)


@dataclass
class Services:
    """The services of a running stack."""

    stack: Stack
    opened: ExitStack
    channels: dict[tuple[str, Caller], grpc.Channel] = field(default_factory=dict)

    def ask(self, workspace: str, ask: Ask, ids: Mapping[str, str]) -> Told:
        """What a method answers for a workspace; of several messages the first."""
        status, answer = self.call(workspace, ask.method, ask.messages(ids))
        if status != "OK":
            return Told(status, masked(answer, ids))
        first = next(iter(answer), None)
        text = "" if first is None else json_format.MessageToJson(first, indent=None)
        return Told(status, masked(text, ids), first)

    def call(
        self, workspace: str, name: str, sent: Iterator[Message], most: int = 1
    ) -> tuple[str, Any]:
        """The status of a call, and either its first messages or what is said of its failure."""
        method = methods()[name]
        path = f"/{method.containing_service.full_name}/{method.name}"
        kinds = ("unary", "stream")
        streams = method.server_streaming
        make = f"{kinds[method.client_streaming]}_{kinds[streams]}"
        call: Any = getattr(self._channel(path), make)(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        identity = "authorization", f"Bearer {self.stack.token}"
        given: Any = sent if method.client_streaming else next(sent)
        try:
            answer = call(given, metadata=(identity, (WORKSPACE_KEY, workspace)), timeout=SECONDS)
            if not streams:
                return "OK", [answer]
            try:
                return "OK", list(islice(answer, most))
            finally:
                answer.cancel()
        except grpc.RpcError as error:
            refused = from_rpc_error(error)
            told = f"{refused.reason}: {refused.message} {sorted(refused.metadata.items())}"
            return error.code().name, told  # type: ignore[attr-defined]

    def _channel(self, method: str) -> grpc.Channel:
        """To the process that has a method, as one that may call it."""
        known = process_of(method.split("/")[1]), min(callers(method))
        if known not in self.channels:
            self.channels[known] = self.opened.enter_context(self.stack.channel(*known))
        return self.channels[known]


def process_of(service: str) -> str:
    """Which process has a service."""
    return PROCESSES.get(service.rpartition(".v1.")[0], "registry")


_MADE: Final = re.compile(r"\b(hand|req)_[0-9A-Za-z]+|\d{4}-\d\d-\d\dT[\d:.]+Z")


def masked(text: str, ids: Mapping[str, str]) -> str:
    """A text without the ids that were asked with, and without what is new in every answer."""
    for name in KINDS:
        if name in ids:
            text = text.replace(ids[name], f"<{KINDS[name]}>")
    return _MADE.sub("<new>", text)
