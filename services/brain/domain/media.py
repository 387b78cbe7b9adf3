"""Pictures and documents among the encoded blocks of a conversation: where they are, their weight.

Those that came as files stand as references, whose bytes are put in when a request is sent
(`attachments.py`): nothing that is known of a session depends on what is in a file.
"""

from __future__ import annotations

import re
from typing import Final

from services.brain.domain.content import REFERENCE_MARK

# Inside a JSON string every quote is escaped, so that only a block's own source looks like this:
# in JSON that others have written, `content.foreign` has seen to it.
# Possessive: one may have millions of characters.
TEXT: Final = rb'"(?:[^"\\]++|\\.)*+"'
_DATA = re.compile(rb'"type":"base64","media_type":"([^"]*)","data":"[A-Za-z0-9+/=]*"')
_DATA_MARK = b'"type":"base64"'

REFERENCE: Final = re.compile(
    rb'\{"type":"(image|document)","source":'
    + re.escape(REFERENCE_MARK)
    + rb"("
    + TEXT
    + rb')\}(?:,"context":('
    + TEXT
    + rb'))?(?:,"title":('
    + TEXT
    + rb"))?"
)
"""A reference, all but its last brace: kind, file, context and title, as JSON."""

HELD: Final = re.compile(
    rb'\{"type":"(image|document)","source":(?:\{'
    + _DATA.pattern
    + rb"|"
    + re.escape(REFERENCE_MARK)
    + TEXT
    + rb')\}(?:,"context":'
    + TEXT
    + rb')?(?:,"title":'
    + TEXT
    + rb")?\}"
)
"""One whose bytes are in the conversation, or will be."""

SHOWN: Final = re.compile(
    rb'\{"type":"(image|document)","source":\{"type":"[a-z0-9]+"(?:,"[a-z_]+":' + TEXT + rb")*+\}"
    rb'(?:,"(?:context|title)":' + TEXT + rb")*+\}"
)
"""One from wherever it comes."""

_PICTURE_WEIGHT = 6_000
_DOCUMENT_WEIGHT = 40_000


def light(encoded: bytes | bytearray) -> int:
    """Bytes of it that count for nothing; of references, how many there are too few.

    A picture costs by its area, which is bounded; a document by its pages, and what is in a file
    nobody knows before the model has counted it.
    """
    found = 0
    if _DATA_MARK in encoded:
        found += sum(map(_light_data, _DATA.finditer(encoded)))
    if REFERENCE_MARK in encoded:
        found += sum(map(_light_reference, REFERENCE.finditer(encoded)))
    return found


def _light_data(found: re.Match[bytes]) -> int:
    size = found.end() - found.start()
    picture = found.group(1).startswith(b"image/")
    return max(0, size - (_PICTURE_WEIGHT if picture else max(_PICTURE_WEIGHT, size // 20)))


def _light_reference(found: re.Match[bytes]) -> int:
    return -(_PICTURE_WEIGHT if found.group(1) == b"image" else _DOCUMENT_WEIGHT)
