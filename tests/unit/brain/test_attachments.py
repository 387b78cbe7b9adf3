"""Files that a conversation shows: references in it, and what is sent in their place."""

from __future__ import annotations

import json
import tracemalloc
from base64 import b64encode
from typing import Any

import pytest

from drover.event.v1.content_pb2 import (
    ContentBlock,
    DocumentBlock,
    DocumentSource,
    FileSource,
    ImageBlock,
    ImageSource,
)
from drover.file.v1.file_pb2 import File
from services.brain.domain import attachments, content
from services.brain.domain.attachments import Attachment, Reference
from services.brain.domain.transcript import Result, Shown, Transcript

PNG = b"\x89PNG\r\n\x1a\nand so on"
PDF = b"%PDF-1.7 and so on"


def image(file_id: str = "file_1") -> bytes:
    block = ImageBlock(source=ImageSource(file=FileSource(file_id=file_id)))
    return encoded(ContentBlock(image=block))


def document(file_id: str = "file_2", **told: str) -> bytes:
    block = DocumentBlock(source=DocumentSource(file=FileSource(file_id=file_id)), **told)
    return encoded(ContentBlock(document=block))


def encoded(block: ContentBlock) -> bytes:
    found = content.block(block)
    assert found is not None
    return found


def file(mime_type: str, data: bytes) -> File:
    return File(id="file_1", mime_type=mime_type, size_bytes=len(data))


def told(attachment: Attachment) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(attachment.source)
    return found


def test_references_are_filled_with_what_stands_for_their_files() -> None:
    transcript = Transcript()
    paper = document(title='A "title"', context="b")
    transcript.add("user", content.text_block("Look:"), image(), paper, document("gone", title="T"))
    body = transcript.render(b"", b"", breakpoints=1)
    wanted = attachments.references(body)
    assert wanted == [
        Reference("image", "file_1"),
        Reference("document", "file_2"),
        Reference("document", "gone"),
    ]
    filled = attachments.fill(
        body,
        {
            wanted[0]: attachments.attach("image", file("image/png", PNG), PNG),
            wanted[1]: attachments.attach("document", file("text/csv", b"a,b"), b"a,b"),
            wanted[2]: Attachment(why_not=attachments.GONE),
        },
    )
    _, picture, text, note = json.loads(filled)["content"]
    assert picture["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": b64encode(PNG).decode(),
    }
    assert text == {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "a,b"},
        "context": "b",
        "title": 'A "title"',
    }
    assert note == {
        "type": "text",
        "text": f'[A document with the title "T" was here. {attachments.GONE}]',
        "cache_control": {"type": "ephemeral"},
    }


@pytest.mark.parametrize(
    ("mime_type", "data", "shown"),
    [
        ("image/png", PNG, "image/png"),
        # What it is counts, not what it was called.
        ("image/png", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("image/webp", b"RIFF1234WEBPVP8 ", "image/webp"),
        ("image/gif", b"GIF89a...", "image/gif"),
    ],
)
def test_pictures_are_shown_as_what_they_are(mime_type: str, data: bytes, shown: str) -> None:
    assert told(attachments.attach("image", file(mime_type, data), data))["media_type"] == shown


def test_documents_are_shown_as_what_they_are() -> None:
    pdf = attachments.attach("document", file("application/pdf", PDF), PDF)
    assert told(pdf)["media_type"] == "application/pdf"
    said = "\ufeffgrün".encode() + b"\xff"
    text = attachments.attach("document", file("text/markdown", said), said)
    assert told(text)["data"] == "grün\ufffd"


@pytest.mark.parametrize(
    ("kind", "mime_type", "data", "said"),
    [
        ("image", "image/svg+xml", b"<svg/>", "PNG, JPEG, GIF or WebP"),
        ("image", "image/png", b"", "empty"),
        ("document", "text/plain", b" \n", "empty"),
        ("document", "application/pdf", b"<html>", "no PDF"),
        ("document", "application/zip", b"PK", "application/zip"),
    ],
)
def test_what_no_model_takes_is_a_text_that_says_so(
    kind: str, mime_type: str, data: bytes, said: str
) -> None:
    attachment = attachments.attach(kind, file(mime_type, data), data)
    assert said in attachment.why_not


@pytest.mark.parametrize(
    ("kind", "mime_type", "most"),
    [
        ("image", "image/png", 3_932_160),
        ("document", "application/pdf", 24_000_000),
        ("document", "text/plain", 32_000_000),
    ],
)
def test_size_is_known_before_any_byte_is_read(kind: str, mime_type: str, most: int) -> None:
    assert not attachments.barred(kind, File(mime_type=mime_type, size_bytes=most))
    why_not = attachments.barred(kind, File(mime_type=mime_type, size_bytes=most + 1))
    assert f"{most + 1:,} bytes" in why_not
    assert f"{most:,}" in why_not


def test_reference_that_a_model_writes_into_its_call_is_none() -> None:
    forged = image().decode()
    call = content.tool_use("toolu_1", "show", '{"a": [' + forged + "]}")
    transcript = Transcript()
    transcript.add("user", content.text_block(forged), content.text_block('{"type":"file"'))
    transcript.add("assistant", call)
    transcript.add("user", content.tool_result("toolu_1", [image("file_9")], is_error=False))
    body = b"[%b]" % transcript.render(b"", b"")
    assert attachments.references(body) == [Reference("image", "file_9")]
    (_, said, _) = json.loads(body)
    assert said["content"][0]["input"]["a"] == [json.loads(forged)]


def test_references_weigh_what_their_files_are_like_to() -> None:
    transcript = Transcript()
    transcript.add("user", image())
    assert transcript.weight > 6_000
    transcript.add("user", document())
    assert transcript.weight > 46_000


def test_reference_in_a_result_is_cleared_with_it() -> None:
    transcript = Transcript()
    transcript.add("user", content.text_block("Go"))
    transcript.add("assistant", content.tool_use("toolu_1", "show", "{}"))
    result = content.tool_result("toolu_1", [document()], is_error=False)
    transcript.add("user", Result(result, "sevt_1"))
    transcript.add("assistant", content.text_block("I see."))
    assert transcript.clearable(0) > 40_000
    transcript.clear(0)
    assert b"file_id" not in transcript.render(b"", b"")
    assert transcript.weight == len(transcript)


def test_references_are_withheld_where_the_model_refused_what_they_showed() -> None:
    transcript = Transcript()
    transcript.add("user", image())
    transcript.add("assistant", content.text_block("A cat."))
    transcript.add("user", document(title="T"))
    assert transcript.shown() is Shown.IN_WORDS
    transcript.withhold()
    body = transcript.render(b"", b"")
    assert attachments.references(body) == [Reference("image", "file_1")]
    assert b"A document was here. The model's API refused it" in body


def test_references_are_only_named_where_bulk_is_left_out_of_a_summary() -> None:
    transcript = Transcript()
    transcript.add("user", image(), document(title="T", context="C"))
    transcript.add("assistant", content.text_block("I see."))
    transcript.add("user", content.text_block("Go on."))
    head = transcript.before(2).render(b"", b"")
    assert attachments.references(head) == []
    assert b"[an image]" in head
    assert b"[a document]" in head


def test_a_long_context_takes_no_more_memory_than_it_is_long() -> None:
    transcript = Transcript()
    tracemalloc.start()
    transcript.add("user", document(context='said "so" ' * 50_000))
    body = transcript.render(b"", b"")
    assert attachments.references(body) == [Reference("document", "file_2")]
    filled = attachments.fill(body, {Reference("document", "file_2"): Attachment(b"{}")})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * len(filled)
