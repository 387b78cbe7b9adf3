"""The routes of the contract: which HTTP requests reach which RPC, and how they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from google.api import annotations_pb2  # type: ignore[import-untyped]

from drover.api.v1 import annotations_pb2 as api
from gateway.transcode.decode import Decoders
from gateway.transcode.encode import Encoders
from gateway.transcode.form import Form, header_of
from gateway.transcode.request import RequestDecoder
from gateway.transcode.shape import ContractError, Shapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.api.http_pb2 import HttpRule  # type: ignore[import-untyped]
    from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor

_VARIABLES = re.compile(r"\{(\w+)\}")


class Kind(Enum):
    """How a route is served: by one message for another, or by hand."""

    UNARY = auto()
    EVENTS = auto()
    """A stream of frames becomes server-sent events."""
    UPLOAD = auto()
    """A form becomes a stream: a header, and pieces of files."""
    DOWNLOAD = auto()
    """A stream of metadata and pieces becomes a file."""


@dataclass(frozen=True, slots=True)
class Route:
    """One verb and path template, bound to an RPC.

    `request` reads the RPC's message, of an upload the header. `shown` is the field of the response
    that is the HTTP answer; the whole response when empty. `body` says that the request has a JSON
    body; uploads have a `form`. `additional` ones are other paths of an RPC that has a route
    already.
    """

    verb: str
    template: str
    method: MethodDescriptor
    rules: api.MethodRules
    request: RequestDecoder
    shown: str
    body: bool
    form: Form | None
    additional: bool

    @property
    def kind(self) -> Kind:
        """How it is served."""
        if self.form is not None:
            return Kind.UPLOAD
        if not self.method.server_streaming:
            return Kind.UNARY
        pieces = "data" in self.method.output_type.fields_by_name
        return Kind.DOWNLOAD if pieces else Kind.EVENTS

    @property
    def changes(self) -> bool:
        """Whether a request may change something, so that its repetition must be told."""
        return self.verb != "GET" and not self.rules.by_hand

    @property
    def answer(self) -> Descriptor:
        """The message that is the HTTP answer."""
        output = self.method.output_type
        if not self.shown:
            return output
        message = output.fields_by_name[self.shown].message_type
        if message is None:
            msg = f"{output.full_name}.{self.shown} is no message"
            raise ContractError(msg)
        return message


class Contract:
    """All that the gateway serves over HTTP, compiled from the descriptors of `services`.

    Raises `ContractError` for annotations that it cannot honour.
    """

    def __init__(self, services: Iterable[ServiceDescriptor]) -> None:
        self.shapes = Shapes()
        self.decoders = Decoders(self.shapes)
        self.encoders = Encoders(self.shapes)
        self.routes = tuple(
            route
            for service in services
            for method in service.methods
            for route in self._routes(method)
        )

    def _routes(self, method: MethodDescriptor) -> Iterator[Route]:
        options = method.GetOptions()
        if not options.HasExtension(annotations_pb2.http):
            return
        rules = options.Extensions[api.method]
        streams = method.client_streaming or method.server_streaming
        if streams and not rules.by_hand:
            msg = f"{method.full_name}: a stream is served by hand"
            raise ContractError(msg)
        first = options.Extensions[annotations_pb2.http]
        for rule in (first, *first.additional_bindings):
            yield self._route(method, rules, rule, additional=rule is not first)

    def _route(
        self, method: MethodDescriptor, rules: api.MethodRules, rule: HttpRule, *, additional: bool
    ) -> Route:
        kind = rule.WhichOneof("pattern")
        if kind in {None, "custom"} or rule.body not in {"", "*"}:
            msg = f"{method.full_name}: only plain verbs, and bodies of none or all"
            raise ContractError(msg)
        template = str(getattr(rule, kind))
        body = rule.body == "*"
        path = _VARIABLES.findall(template)
        form, read = None, method.input_type
        if method.client_streaming:
            read = header_of(method)
            form = Form.of(read, self.shapes)
        route = Route(
            verb=kind.upper(),
            template=template,
            method=method,
            rules=rules,
            request=RequestDecoder(read, path, self.decoders, body=body),
            shown=rule.response_body,
            body=body and form is None,
            form=form,
            additional=additional,
        )
        if not method.server_streaming:
            self.encoders.of(route.answer)  # refused at start rather than by a request
        return route
