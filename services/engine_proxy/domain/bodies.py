"""JSON that means the same to every reader.

The engine's decoder takes the last of two equal keys, and `privileged` for `Privileged`. Here a
repeated key is refused, keys are compared letter by letter, and what is passed on is written anew.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from services.engine_proxy.domain.refusal import malformed

if TYPE_CHECKING:
    from collections.abc import Sequence


def read(text: bytes | str) -> dict[str, Any]:
    """An object. Raises `DroverError`."""
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise malformed("what was sent is no JSON of one meaning") from error
    if not isinstance(found, dict):
        raise malformed("what was sent is no JSON object")
    return found


def written(body: dict[str, Any]) -> bytes:
    """The bytes that are sent on."""
    return json.dumps(body).encode("ascii")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        msg = "a key twice"
        raise ValueError(msg)
    return found


def _constant(name: str) -> object:
    msg = f"{name} is no number"
    raise ValueError(msg)
