"""Checks of one value, made from the limits that the contract sets for it.

A maker answers `None` when there is nothing to check.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from google.protobuf.message import Message

    from drover.api.v1 import annotations_pb2 as api

Violation = tuple[str, str]  # the path below the value checked, and what is wrong there
Check = Callable[[Any], Violation | None]


def every(*checks: Check | None) -> Check | None:
    """All of `checks` in their order, up to the first violation."""
    present = [one for one in checks if one is not None]
    if len(present) == 1:
        return present[0]

    def run(value: object) -> Violation | None:
        for one in present:
            if (violation := one(value)) is not None:
                return violation
        return None

    return run if present else None


def string(rules: api.StringRules) -> Check | None:
    """Lengths (in code points and in UTF-8 bytes), pattern, set and JSON."""
    characters = size(len, rules.min_len, given(rules, "max_len"), "character")
    encoded = size(lambda text: len(text.encode()), 0, given(rules, "max_bytes"), "byte")
    pattern = among = json = None
    if rules.pattern:
        # RE2's reading: `$` is the very end, \d and \w are ASCII.
        exact = re.sub(r"(?<!\\)\$$", r"\\Z", rules.pattern)
        pattern = _holds(re.compile(exact, re.ASCII).search, f"must match {rules.pattern}")
    if allowed := list(getattr(rules, "in")):
        among = _holds(frozenset(allowed).__contains__, f"must be one of {', '.join(allowed)}")
    if rules.json_object:
        json = _holds(_is_json_object, "must be a JSON object")
    return every(characters, encoded, pattern, among, json)


def integer(rules: api.Int64Rules) -> Check | None:
    """A range, both ends included."""
    low, high = given(rules, "gte"), given(rules, "lte")
    if low is not None and high is not None:
        return _holds(lambda value: low <= value <= high, f"must be between {low} and {high}")
    if low is not None:
        return _holds(lambda value: value >= low, f"must be at least {low}")
    if high is not None:
        return _holds(lambda value: value <= high, f"must be at most {high}")
    return None


def known(numbers: Container[int]) -> Check:
    """An enum's value that the enum names."""
    return _holds(numbers.__contains__, "the value is not known")


def size(measure: Callable[[Any], int], low: int, high: int | None, noun: str) -> Check | None:
    """How many of `noun` there may be, by `measure`."""
    least = most = None
    if low:
        text = f"at least {low} {noun}{' is' if low == 1 else 's are'} required"
        least = _holds(lambda value: measure(value) >= low, text)
    if high is not None:
        text = f"at most {high} {noun}{' is' if high == 1 else 's are'} allowed"
        most = _holds(lambda value: measure(value) <= high, text)
    return every(least, most)


def unique(values: Iterable[object]) -> Violation | None:
    """A check that no value is there twice."""
    seen: set[object] = set()
    for index, value in enumerate(values):
        if value in seen:
            return str(index), "is there twice"
        seen.add(value)
    return None


def given(rules: Message, name: str) -> int | None:
    """An optional limit, `None` when the contract does not set it."""
    return getattr(rules, name) if rules.HasField(name) else None


def _holds(test: Callable[[Any], object], otherwise: str) -> Check:
    violation = "", otherwise
    return lambda value: None if test(value) else violation


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
