from __future__ import annotations

import base64
import json

import mcp_types as types
import pytest

from services.vault_proxy.mcp.content import blocks
from services.vault_proxy.mcp.limits import Limits

PNG = b"\x89PNG\r\n\x1a\n rest"
LIMITS = Limits(image_bytes=100, document_bytes=100, blocks=3)


def _shown(*given: types.ContentBlock, structured: object = None) -> list[str]:
    result = types.CallToolResult(content=list(given), structured_content=structured)
    return [
        block.text.text
        if block.HasField("text")
        else f"{block.WhichOneof('block')} "
        + (block.image.source.base64.media_type or block.document.source.base64.media_type)
        for block in blocks(result, LIMITS)
    ]


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)


def _image(data: bytes | str, mime_type: str = "image/png") -> types.ImageContent:
    coded = data if isinstance(data, str) else base64.b64encode(data).decode()
    return types.ImageContent(data=coded, mime_type=mime_type)


def _blob(data: bytes, mime_type: str | None = None) -> types.EmbeddedResource:
    return types.EmbeddedResource(
        resource=types.BlobResourceContents(
            uri="file:///it", mime_type=mime_type, blob=base64.b64encode(data).decode()
        )
    )


def test_text_is_as_it_was_and_empty_text_is_none() -> None:
    assert _shown(_text(" a\n"), _text("")) == [" a\n"]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_an_image_is_of_the_kind_that_its_bytes_are(data: bytes, kind: str) -> None:
    assert _shown(_image(data, "image/anything")) == [f"image {kind}"]


def test_what_is_no_image_is_named_instead() -> None:
    assert _shown(_image(b"<svg/>", "image/svg+xml")) == [
        "[image, image/svg+xml, 6 bytes: it cannot be shown]"
    ]
    assert _shown(_image("*not base64*")) == ["[image: it is damaged]"]


def test_a_document_is_one_by_its_bytes_too() -> None:
    assert _shown(_blob(b"%PDF-1.7 ...", "text/html")) == ["document application/pdf"]
    assert _shown(_blob(PNG)) == ["image image/png"]
    assert _shown(_blob(b"\x00")) == [
        "[resource file:///it, of an unknown kind, 1 bytes: it cannot be shown]"
    ]


def test_what_is_too_large_is_named_instead() -> None:
    assert "too large" in _shown(_image(PNG + b"x" * 200))[0]
    assert "too large" in _shown(_blob(b"%PDF-" + b"x" * 200))[0]


def test_structured_content_is_shown_where_no_text_says_it() -> None:
    told = {"a": [1, {"b": "ä"}]}
    assert _shown(structured=told) == ['{"a": [1, {"b": "ä"}]}']
    assert _shown(_text("see:"), structured=told) == ["see:", '{"a": [1, {"b": "ä"}]}']
    said = json.dumps(told, indent=1)
    assert _shown(_text(said), structured=told) == [said]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["sunny"], "sunny"),
        ([""], ""),
        (["7"], 7),
        (["1.5"], 1.5),
        (["true"], True),
        (["null"], None),
        (['{"a": 1}'], {"a": 1}),
        (["[1, 2]"], [1, 2]),
        (["a", "2", '{"b":[]}'], ["a", 2, {"b": []}]),
        ([], []),
    ],
)
def test_a_result_that_is_only_wrapped_is_shown_once(texts: list[str], told: object) -> None:
    assert _shown(*map(_text, texts), structured={"result": told}) == [one for one in texts if one]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["sunny"], {"result": "rainy"}),
        (["1"], {"result": True}),
        (["a", "b"], {"result": ["b", "a"]}),
        (["a"], {"result": ["a", "b"]}),
        (["sunny"], {"result": "sunny", "more": 1}),
        (["sunny"], {"answer": "sunny"}),
    ],
)
def test_structured_content_that_says_more_than_the_texts_is_shown(
    texts: list[str], told: dict[str, object]
) -> None:
    assert _shown(*map(_text, texts), structured=told) == [*texts, json.dumps(told)]


def test_blocks_past_the_most_are_counted() -> None:
    assert _shown(*map(_text, "abcde")) == ["a", "b", "c", "[2 more blocks are left out]"]


def test_a_link_is_told_in_words_of_bounded_length() -> None:
    link = types.ResourceLink(name="n", uri="file:///x", description="y" * 9_000)
    assert len(_shown(link)[0]) < 2_200
