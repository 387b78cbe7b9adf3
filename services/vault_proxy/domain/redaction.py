"""Strikes values out of answers, in the forms that servers send them back in (case V2)."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import quote, quote_plus

from services.vault_proxy.domain.rewriting import Table

LEAST: Final = 6
"""Bytes of a value below which it is not struck out: it would be found in every text."""
_STRUCK: Final = b"*"
_LEAST_BASE64: Final = 8
_NESTED: Final = 3
"""How many texts in one another JSON is followed into: a body, in an answer that shows it twice."""
_ESCAPES: Final = re.compile(r"%[0-9A-F]{2}")
_SCRIPT_ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "'": "\\u0027"}
_BASE64_STARTS: Final = (0, 2, 3)
"""Characters that depend on what stands before the value, by how many bytes of a group it has."""


def redaction(values: Iterable[str]) -> Table:
    """Replaces every form of the values by as many asterisks: lengths stay."""
    return Table(
        {
            form: _STRUCK * len(form)
            for value in values
            if len(value.encode()) >= LEAST
            for form in forms(value)
        },
        secret=True,
    )


def forms(value: str) -> set[bytes]:
    """The value as it is sent, and as JSON, URLs, HTML, base64 and hexadecimal digits spell that.

    It is sent plain, as JSON spells it, or as a form does: a server that shows a body as a text of
    its answer spells it twice, and one that shows such a text within another three times. Beyond
    ASCII, servers take the bytes of a header for Latin-1 and send the characters back as UTF-8.
    """
    sent = {value, json.dumps(value, ensure_ascii=False)[1:-1], quote_plus(value)}
    found = {form for text in sent for form in _spelt(text)}
    latin = value.encode().decode("latin-1")
    more = {latin, *_json_forms(latin), *_url_forms(latin)}
    nested = {value}
    for _ in range(_NESTED):
        nested = {text for inner in nested for text in _as_json(inner)}
        more |= nested
    return found | {text.encode() for text in more}


def _spelt(value: str) -> set[bytes]:
    raw = value.encode()
    spelt = {value, *_json_forms(value), *_url_forms(value), *_html_forms(value)}
    found = {text.encode() for text in spelt} | {raw.hex().encode(), raw.hex().upper().encode()}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        found |= _base64_forms(raw, encode)
    return found


def _as_json(value: str) -> set[str]:
    return {json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}


def _json_forms(value: str) -> set[str]:
    plain = _as_json(value)
    found = plain | {text.replace("/", "\\/") for text in plain}
    for text in plain:  # as encoders do that mind being inside HTML
        found.add("".join(_SCRIPT_ESCAPES.get(char, char) for char in text))
    return found | {re.sub(r"\\u[0-9a-f]{4}", lambda one: _upper(one[0]), text) for text in found}


def _upper(escape: str) -> str:
    return escape[:2] + escape[2:].upper()


def _url_forms(value: str) -> set[str]:
    found = {
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
        quote(value, safe="!'()*"),  # encodeURIComponent
        quote(value, safe=";,/?:@&=+$!'()*#"),  # encodeURI
        quote(value, safe="!$&'()*+,;=:@/"),  # a path
    }
    return found | {_ESCAPES.sub(lambda one: one[0].lower(), text) for text in found}


def _html_forms(value: str) -> set[str]:
    escaped = html.escape(value)
    return {
        escaped,
        html.escape(value, quote=False),
        escaped.replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    }


def _base64_forms(raw: bytes, encode: Callable[[bytes], bytes]) -> set[bytes]:
    """What base64 makes of the value wherever it stands: three alignments, their firm middles."""
    found = set()
    for offset, start in enumerate(_BASE64_STARTS):
        text = encode(b"\0" * offset + raw).rstrip(b"=")
        end = len(text) - (1 if (offset + len(raw)) % 3 else 0)
        if end - start >= _LEAST_BASE64:
            found.add(text[start:end])
    return found
