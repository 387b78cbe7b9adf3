"""The parts of a prepared request that some platforms want elsewhere than in its body.

Bedrock and Vertex take the model in the path. The rest of the body must stay the same bytes: it is
what prompt caches key on, and tool inputs in it are the model's own text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

_KEY: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:\s*')
_NEXT: Final = re.compile(r"\s*([,}])")
_EMPTY: Final = re.compile(r"\s*\}")
_OPENS: Final = re.compile(r"\s*\{")
_DECODE: Final = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Envelope:
    """What was taken out of a body, decoded, and the members that stay, as they were written."""

    taken: dict[str, object]
    members: bytes


def open_envelope(body: bytes, names: Collection[str]) -> Envelope:
    """Takes the members `names` out of the JSON object `body`.

    Reading stops when all of them were found: where they come first, nothing else is looked at.
    Raises ValueError where `body` is no JSON object.
    """
    text = body.decode()
    start = _OPENS.match(text)
    if start is None:
        msg = "the request is no JSON object"
        raise ValueError(msg)
    taken: dict[str, object] = {}
    kept: list[str] = []
    at = start.end()
    while len(taken) < len(names):
        key = _KEY.match(text, at)
        if key is None:
            if _EMPTY.match(text, at):
                break
            msg = f"the request is no JSON object: a name is expected at {at}"
            raise ValueError(msg)
        name: str = json.loads(key[1])
        value, end = _DECODE(text, key.end())
        after = _NEXT.match(text, end)
        if after is None:
            msg = f"the request is no JSON object: nothing is expected at {end}"
            raise ValueError(msg)
        if name in names:
            taken[name] = value
        else:
            kept.append(text[key.start() : end].strip())
        at = after.end()
        if after[1] == "}":
            return Envelope(taken, ",".join(kept).encode())
    rest = text[at : text.rindex("}")].strip()
    return Envelope(taken, ",".join([*kept, rest] if rest else kept).encode())


def model_of(envelope: Envelope) -> str:
    """The id that was taken out. Raises ValueError where a path could not hold it."""
    model = envelope.taken.get("model")
    if not isinstance(model, str) or model.partition(";")[0] in ("", ".", ".."):
        msg = f"{model!r} is no model's id"
        raise ValueError(msg)
    return model


def seal(members: bytes, **added: str | list[str]) -> bytes:
    """A JSON object of `added` and then `members`."""
    head = json.dumps(added, ensure_ascii=False, separators=(",", ":"))[1:-1].encode()
    return b"{%b}" % b",".join(part for part in (head, members) if part)
