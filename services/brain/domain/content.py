"""Content blocks as the bytes that the Messages API takes.

Blocks are encoded once, when the log is folded, and only joined afterwards: what the model is sent
for an old part of a conversation is the same bytes in every request.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drover.event.v1.content_pb2 import (
        ContentBlock,
        DocumentBlock,
        ImageBlock,
        SearchResultBlock,
    )

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_REDACTED = "[content was withheld]"
_NO_OUTPUT = "(no output)"

REFERENCE_MARK: Final = b'{"type":"file","file_id":'
"""How the source of a picture or document begins that is a file. No other bytes look like it."""


def quoted(text: str) -> bytes:
    """`text` as a JSON string."""
    return _encode(text).encode()


def foreign(text: str) -> bytes:
    """JSON that others have written, byte for byte, unless it could pass for a reference of ours.

    A model, or a server, that writes one would be shown the file in its own words.
    """
    encoded = text.encode()
    if REFERENCE_MARK not in encoded:
        return encoded
    return encoded.replace(REFERENCE_MARK, b"{ " + REFERENCE_MARK[1:])


def text_block(text: str) -> bytes:
    """A text block."""
    return b'{"type":"text","text":' + quoted(text) + b"}"


def block(content: ContentBlock) -> bytes | None:
    """One block of a message or of a result; None for text that the API would refuse as empty."""
    match content.WhichOneof("block"):
        case "text":
            text = content.text.text
            return text_block(text) if text and not text.isspace() else None
        case "image":
            return _image(content.image)
        case "document":
            return _document(content.document)
        case "search_result":
            return _search_result(content.search_result)
        case "redacted":
            return text_block(_REDACTED)
        case _:
            return None


def blocks(contents: Iterable[ContentBlock]) -> list[bytes]:
    """The blocks that have something to say, in order."""
    return [encoded for content in contents if (encoded := block(content)) is not None]


def tool_use(model_call_id: str, name: str, arguments: str) -> bytes:
    """A tool call as the model made it; `arguments` is spliced in as `foreign` JSON is."""
    return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
        quoted(model_call_id),
        quoted(name),
        foreign(arguments),
    )


def tool_result(model_call_id: str, contents: Sequence[bytes], *, is_error: bool) -> bytes:
    """The result of a call. One without content says so, since the API refuses empty errors."""
    return b'{"type":"tool_result","tool_use_id":%b,"content":[%b]%b}' % (
        quoted(model_call_id),
        b",".join(contents) or text_block(_NO_OUTPUT),
        b',"is_error":true' if is_error else b"",
    )


def cleared_result(call_id: bytes, event_id: str, size: int, *, is_error: bool) -> bytes:
    """What stands for a result that was cleared; `call_id` is a JSON string's inside."""
    note = (
        f"[This result ({size:,} bytes) was cleared to make room. It is still in the log: "
        f'call session_history with {{"event_id":"{event_id}"}} to read it again.]'
    )
    return b'{"type":"tool_result","tool_use_id":"%b","content":[%b]%b}' % (
        call_id,
        text_block(note),
        b',"is_error":true' if is_error else b"",
    )


def withheld(kind: str) -> bytes:
    """What stands for an image or a document where only its place in the conversation matters."""
    return text_block(f"[{'an image' if kind == 'image' else 'a document'}]")


def refused(kind: str) -> bytes:
    """What stands for an image or a document for which the model's API refused a request."""
    name = "An image" if kind == "image" else "A document"
    return text_block(f"[{name} was here. The model's API refused it, so it cannot be shown.]")


def thinking(text: str, signature: str) -> bytes:
    """A thinking block with the signature that lets the model read it again."""
    return b'{"type":"thinking","thinking":%b,"signature":%b}' % (quoted(text), quoted(signature))


def redacted_thinking(data: str) -> bytes:
    """A thinking block that only the model can read."""
    return b'{"type":"redacted_thinking","data":%b}' % quoted(data)


def _image(image: ImageBlock) -> bytes:
    source = image.source
    match source.WhichOneof("source"):
        case "base64" if not source.base64.data:
            return text_block("[An image was here. Its file is empty.]")
        case "base64":
            value = _base64(source.base64.media_type, source.base64.data)
        case "url":
            value = b'{"type":"url","url":%b}' % quoted(source.url.url)
        case _:
            value = REFERENCE_MARK + quoted(source.file.file_id) + b"}"
    return b'{"type":"image","source":%b}' % value


def _document(document: DocumentBlock) -> bytes:
    source = document.source
    match source.WhichOneof("source"):
        case "base64" if not source.base64.data:
            return text_block("[A document was here. Its file is empty.]")
        case "base64":
            value = _base64(source.base64.media_type, source.base64.data)
        case "text":
            value = b'{"type":"text","media_type":%b,"data":%b}' % (
                quoted(source.text.media_type),
                quoted(source.text.data),
            )
        case "url":
            value = b'{"type":"url","url":%b}' % quoted(source.url.url)
        case _:
            value = REFERENCE_MARK + quoted(source.file.file_id) + b"}"
    extra = b""
    if document.context:
        extra += b',"context":' + quoted(document.context)
    if document.title:
        extra += b',"title":' + quoted(document.title)
    return b'{"type":"document","source":%b%b}' % (value, extra)


def _search_result(result: SearchResultBlock) -> bytes:
    return b'{"type":"search_result","source":%b,"title":%b,"content":[%b],"citations":%b}' % (
        quoted(result.source),
        quoted(result.title),
        b",".join(text_block(part.text) for part in result.content),
        b'{"enabled":true}' if result.citations.enabled else b'{"enabled":false}',
    )


def _base64(media_type: str, data: str) -> bytes:
    return b'{"type":"base64","media_type":%b,"data":%b}' % (quoted(media_type), quoted(data))
