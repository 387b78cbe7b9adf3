"""A request's message, gathered from the path, the query, the headers and the body."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from google.protobuf.message_factory import GetMessageClass

from gateway.transcode import document
from gateway.transcode.refusal import Refused, unknown_field
from gateway.transcode.shape import ContractError
from gateway.transcode.values import text_reader, text_setter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from gateway.transcode.decode import Decoders
    from gateway.transcode.shape import FieldShape
    from gateway.transcode.values import Read, Setter

_IGNORED = "beta"  # older SDKs append ?beta=true (ENDPOINTS §0)
_MAX_PARAMETERS = 1_000


class RequestDecoder:
    """Makes the messages of one method of the contract from HTTP requests.

    With `body`, all fields but those of the path and those with a query or header name of their
    own are members of a JSON object; without, they are query parameters.
    """

    def __init__(
        self, descriptor: Descriptor, path: Sequence[str], decoders: Decoders, *, body: bool
    ) -> None:
        shape = decoders.shapes.of(descriptor)
        self._make = GetMessageClass(descriptor)
        in_path = frozenset(path)
        self.path: dict[str, Setter] = {name: text_setter(shape.field(name)) for name in path}
        self.query: dict[str, FieldShape] = {}
        self.headers: dict[str, FieldShape] = {}
        for field in shape.fields:
            if field.name in in_path or field.read_only:
                continue
            if field.header:
                self.headers[field.header] = field
            elif field.query or not body:
                self.query[field.query or field.name] = field
        if not body and (shape.union is not None or shape.mask or _IGNORED in self.query):
            msg = f"{descriptor.full_name} cannot be a query"
            raise ContractError(msg)
        self._singles: dict[str, Setter] = {}
        self._lists: dict[str, tuple[str, Read]] = {}
        for name, field in self.query.items():
            if field.repeated:
                self._lists[name] = self._lists[f"{name}[]"] = field.name, text_reader(field)
            else:
                self._singles[name] = text_setter(field)
        self._header_setters = {name: text_setter(field) for name, field in self.headers.items()}
        self.elsewhere = in_path.union(
            field.name for field in (*self.query.values(), *self.headers.values())
        )
        self._body = decoders.body(descriptor, self.elsewhere) if body else None

    def decode(
        self, path: Mapping[str, str], query: bytes, headers: Mapping[str, str], body: bytes
    ) -> Message:
        """The message. Raises INVALID_ARGUMENT or UNKNOWN_FIELD, naming the path."""
        message = self._make()
        try:
            for name, put in self.path.items():
                _put(name, put, message, path[name])
            self._read_query(message, query)
            for name, put in self._header_setters.items():
                if name in headers:
                    _put(name, put, message, headers[name])
            self._read_body(message, body)
        except Refused as refused:
            raise refused.error() from None
        return message

    def _read_body(self, message: Message, body: bytes) -> None:
        if not body:  # a POST without a body carries no fields (ENDPOINTS §0)
            return
        value = document.parse(body)
        if type(value) is not dict:
            raise Refused("the request body must be a JSON object")
        if self._body is None:
            for key in value:
                raise unknown_field(key)
        elif self._body.exact:
            self._body.fill(message, document.whole(body))
        else:
            self._body.fill(message, value)

    def _read_query(self, message: Message, query: bytes) -> None:
        seen: set[str] = set()
        for name, text in _parameters(query):
            if name == _IGNORED:
                continue
            if (single := self._singles.get(name)) is not None:
                if name in seen:
                    raise Refused("is given twice").under(name)
                seen.add(name)
                _put(name, single, message, text)
            elif (found := self._lists.get(name)) is not None:
                self._append(message, name.removesuffix("[]"), found, text)
            else:
                raise Refused("unknown query parameter").under(name)

    @staticmethod
    def _append(message: Message, name: str, target: tuple[str, Read], text: str) -> None:
        field, read = target
        items = getattr(message, field)
        try:
            items.append(read(text))
        except Refused as refused:
            raise refused.under(str(len(items))).under(name) from None


def _put(name: str, put: Setter, message: Message, text: str) -> None:
    try:
        put(message, text)
    except Refused as refused:
        raise refused.under(name) from None


def _parameters(query: bytes) -> list[tuple[str, str]]:
    if not query:
        return []
    try:
        return parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAX_PARAMETERS,
        )
    except UnicodeDecodeError:
        raise Refused("the query string must be percent-encoded UTF-8") from None
    except ValueError:
        raise Refused(f"at most {_MAX_PARAMETERS} query parameters are allowed") from None
