"""Bytes of the web as text (WHATWG Encoding, in short)."""

from __future__ import annotations

import codecs
import re
from typing import Final

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META: Final = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE
)
_LOOKED_AT: Final = 2048
# What says one of these means the other, on the web.
_MEANT: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
}
_REFUSED: Final = frozenset({"utf-7", "idna", "punycode", "unicode_escape", "raw_unicode_escape"})


def decoded(data: bytes, declared: str = "", *, markup: bool = False) -> str:
    """The text that `data` is: by its byte order mark, the charset `declared`, what its markup
    says, UTF-8, or at last Windows' Western one. What cannot be read is replaced.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    charset = _known(declared)
    if not charset and markup and (found := _META.search(data[:_LOOKED_AT])):
        charset = _known(found[1].decode("ascii"))
        if charset.startswith("utf-16"):  # it could not have been read like this
            charset = "utf-8"
    if charset:
        return data.decode(charset, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _known(label: str) -> str:
    """Python's name of a charset of texts; empty for what is none."""
    try:
        found = codecs.lookup(label.strip().strip("\"'"))
    except (LookupError, ValueError):
        return ""
    name = found.name
    if not found._is_text_encoding or name in _REFUSED:  # noqa: SLF001  # as bytes.decode does
        return ""
    return _MEANT.get(name, name)
