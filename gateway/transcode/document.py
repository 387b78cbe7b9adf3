"""Strict JSON documents, and the exact text of their parts.

What may not reach a service: malformed text, invalid UTF-8, lone surrogates, NaN, keys that are
there twice (of which parsers keep different ones), and nesting that a later parser would die of.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from typing import Any, NamedTuple, Never

import orjson

from gateway.transcode.refusal import Refused

Json = Any
"""A JSON value as Python has it, and whatever an encoder may put in its place."""

_SPACE = re.compile(r"[ \t\n\r]*")
_MAX_DEPTH = 200


class _TwiceError(ValueError):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) < 2:  # noqa: PLR2004  # one key cannot be there twice
        return
    seen = {key for key, _ in pairs}
    if len(seen) != len(pairs):
        for key, _ in pairs:
            if key not in seen:
                raise _TwiceError(key)
            seen.discard(key)


# Values do not matter to it: numbers stay text, however long, and objects become nothing.
_CHECK = JSONDecoder(object_pairs_hook=_unique, parse_int=len, parse_float=len)
_SCAN = JSONDecoder(parse_int=len, parse_float=len).raw_decode


class Part(NamedTuple):
    """A value within a JSON text that is known to be well-formed: where it starts and ends."""

    text: str
    start: int
    end: int

    @property
    def source(self) -> str:
        """The value's own text, byte for byte, without the space around it."""
        return self.text[self.start : self.end]

    @property
    def kind(self) -> str:
        """Its first character, which tells what it is: `{`, `[`, `"`, `n`, …"""
        return self.text[self.start]

    def value(self) -> Json:
        """The value itself."""
        return orjson.loads(self.source)

    def members(self) -> dict[str, Part]:
        """The members of an object."""
        found: dict[str, Part] = {}
        at = self._skip(self.start + 1)
        while self.text[at] != "}":
            key, at = _SCAN(self.text, at)
            at = self._skip(self._skip(at) + 1)  # the colon
            _, end = _SCAN(self.text, at)
            found[key] = Part(self.text, at, end)
            at = self._next(end)
        return found

    def items(self) -> list[Part]:
        """The items of an array."""
        found: list[Part] = []
        at = self._skip(self.start + 1)
        while self.text[at] != "]":
            _, end = _SCAN(self.text, at)
            found.append(Part(self.text, at, end))
            at = self._next(end)
        return found

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return at if match is None else match.end()

    def _next(self, end: int) -> int:
        at = self._skip(end)
        return self._skip(at + 1) if self.text[at] == "," else at


def parse(body: bytes) -> Json:
    """The value of a JSON text. Raises `Refused` for whatever the module's text names."""
    try:
        value = orjson.loads(body)
        _CHECK.decode(body.decode())
    except _TwiceError as twice:
        raise Refused("the key is there twice").under(twice.key) from None
    except (orjson.JSONDecodeError, JSONDecodeError) as error:
        _malformed(str(error))
    except RecursionError:
        _malformed("it is nested too deeply")
    if body.count(b"[") + body.count(b"{") > _MAX_DEPTH and _too_deep(value):
        _malformed("it is nested too deeply")
    return value


def whole(body: bytes) -> Part:
    """A JSON text that `parse` has taken, as a part of itself."""
    text = body.decode()
    start = _SPACE.match(text).end()  # type: ignore[union-attr]  # matches everywhere
    return Part(text, start, _SCAN(text, start)[1])


def _too_deep(value: Json) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return False
    return True


def _malformed(why: str) -> Never:
    raise Refused(f"the request body is not valid JSON: {why}")
