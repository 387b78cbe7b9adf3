"""Results of MCP tools as blocks that a model is shown."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import mcp_types as types

from drover.event.v1 import content_pb2 as pb

if TYPE_CHECKING:
    from services.vault_proxy.mcp.limits import Limits

_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_PDF: Final = "application/pdf"
_LONGEST: Final = 2_048


def blocks(result: types.CallToolResult, limits: Limits) -> list[pb.ContentBlock]:
    """What a tool answered. Text is as it was; what no model can be shown is named instead.

    Structured content is shown as JSON where no text says the same.
    """
    shown = [block for given in result.content for block in _block(given, limits)]
    if result.structured_content is not None and not _said(result):
        shown.append(_text(json.dumps(result.structured_content, ensure_ascii=False)))
    if len(shown) > limits.blocks:
        left = len(shown) - limits.blocks
        shown = [*shown[: limits.blocks], _text(f"[{left} more blocks are left out]")]
    return shown


def _block(given: types.ContentBlock, limits: Limits) -> Iterator[pb.ContentBlock]:
    match given:
        case types.TextContent():
            if given.text:
                yield _text(given.text)
        case types.ImageContent():
            yield _binary(given.data, given.mime_type, "image", limits)
        case types.AudioContent():
            yield _text(f"[audio, {_short(given.mime_type)}: it cannot be shown]")
        case types.ResourceLink():
            yield _text(_link(given))
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            yield _text(f"[resource {_short(str(resource.uri))}]\n{resource.text}")
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            name = f"resource {_short(str(resource.uri))}"
            yield _binary(resource.blob, resource.mime_type or "", name, limits)
        case _:
            yield _text("[a block of a kind that is not known here]")


def _binary(data: str, mime_type: str, name: str, limits: Limits) -> pb.ContentBlock:
    """An image or a PDF by what it is, not by what it is called; or words in its place.

    A model's provider refuses a request that has an image of another kind than it says, and a
    session's every later request would have it.
    """
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return _text(f"[{name}: it is damaged]")
    kind = _kind(raw)
    what = f"[{name}, {_short(mime_type) or 'of an unknown kind'}, {len(raw):,} bytes: "
    if kind == _PDF:
        if len(raw) > limits.document_bytes:
            return _text(what + "too large to be shown]")
        source = pb.DocumentSource(base64=pb.Base64Source(data=data, media_type=_PDF))
        return pb.ContentBlock(document=pb.DocumentBlock(source=source))
    if kind:
        if len(data) > limits.image_bytes:
            return _text(what + "too large to be shown]")
        image = pb.ImageSource(base64=pb.Base64Source(data=data, media_type=kind))
        return pb.ContentBlock(image=pb.ImageBlock(source=image))
    return _text(what + "it cannot be shown]")


def _kind(raw: bytes) -> str:
    if raw.startswith(b"%PDF-"):
        return _PDF
    if raw.startswith(b"RIFF") and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGES if raw.startswith(start)), "")


def _link(link: types.ResourceLink) -> str:
    parts = (link.title or link.name, str(link.uri), link.mime_type, link.description)
    return f"[link to a resource: {', '.join(_short(part) for part in parts if part)}]"


def _said(result: types.CallToolResult) -> bool:
    """Whether the texts are the structured content, or all that is in its one member `result`.

    With that member servers wrap what is no object, and have a text for each item of a list.
    """
    told = result.structured_content
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    if any(_same(text, told) for text in texts):
        return True
    if not isinstance(told, dict) or told.keys() != {"result"}:
        return False
    wrapped = told["result"]
    if any(_is(text, wrapped) for text in texts):
        return True
    return (
        isinstance(wrapped, list) and len(texts) == len(wrapped) and all(map(_is, texts, wrapped))
    )


def _is(text: str, value: object) -> bool:
    """Whether a text is a value of any kind: a string as it is, all else as JSON."""
    if isinstance(value, str):
        return text == value
    if isinstance(value, dict | list):
        return _same(text, value)
    return text.strip() == json.dumps(value)


def _same(text: str, structured: object) -> bool:
    if text.lstrip()[:1] not in {"{", "["}:
        return False
    try:
        return bool(json.loads(text) == structured)
    except (ValueError, RecursionError):
        return False


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _text(text: str) -> pb.ContentBlock:
    return pb.ContentBlock(text=pb.TextBlock(text=text.encode("utf-8", "replace").decode()))
