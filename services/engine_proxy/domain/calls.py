"""The one table of what the engine may be asked: methods, paths, and the words of the query.

It is what the docker backend of the hands asks, and no more. The words are the Engine API's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from services.engine_proxy.domain.refusal import denied, malformed

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(Enum):
    """What else is looked at before a call is passed on, or in its answer."""

    PLAIN = auto()
    INFO = auto()
    VOLUME = auto()
    CREATE = auto()
    CONTAINERS = auto()
    CONTAINER = auto()
    ATTACH = auto()
    EVENTS = auto()
    COMMIT = auto()
    IMAGES = auto()
    IMAGE = auto()
    REMOVE_IMAGE = auto()


@dataclass(frozen=True, slots=True)
class Call:
    """A row of the table. `query` has the words that may be there, each with what it may say."""

    method: str
    path: re.Pattern[str]
    kind: Kind
    query: Mapping[str, re.Pattern[str]]
    has_body: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that is in the table: `path` is without the API's version, `named` what it names."""

    call: Call
    path: str
    named: str
    query: dict[str, str]
    body: bytes


_NAME: Final = "(?P<named>[A-Za-z0-9][A-Za-z0-9_.-]{0,127})"
_IMAGE: Final = "(?P<named>[A-Za-z0-9](?:[A-Za-z0-9_:@+-]|[./](?![./])){0,254})"
_VERSION: Final = re.compile(r"/v[0-9]{1,2}\.[0-9]{1,3}(?=/)")
_FLAG: Final = "[01]|true|false|True|False"
_OFF: Final = "0|false|False"
_NUMBER: Final = "-?[0-9]{1,12}"
_TIME: Final = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_LAYER: Final = "drover-packages-[0-9a-f]{12}"
_TAG: Final = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_MOST_WORDS: Final = 12
_ANY: Final = "[^\0]{0,4096}"


def _call(
    method: str, path: str, kind: Kind = Kind.PLAIN, *, has_body: bool = False, **query: str
) -> Call:
    words = {word: re.compile(pattern) for word, pattern in query.items()}
    return Call(method, re.compile(path), kind, words, has_body)


CALLS: Final = (
    _call("GET", "/_ping"),
    _call("GET", "/version"),
    _call("GET", "/info", Kind.INFO),
    _call("GET", f"/volumes/{_NAME}", Kind.VOLUME),
    _call(
        "POST",
        "/containers/create",
        Kind.CREATE,
        has_body=True,
        name="drover-(hand|spare)_[A-Za-z0-9_-]{1,64}",
    ),
    _call(
        "GET",
        "/containers/json",
        Kind.CONTAINERS,
        all=_FLAG,
        size=_FLAG,
        trunc_cmd=_FLAG,
        limit=_NUMBER,
        filters=_ANY,
    ),
    _call("GET", f"/containers/{_NAME}/json", Kind.CONTAINER),
    _call("POST", f"/containers/{_NAME}/start", Kind.CONTAINER),
    _call("POST", f"/containers/{_NAME}/wait", Kind.CONTAINER),
    _call(
        "POST",
        f"/containers/{_NAME}/attach",
        Kind.ATTACH,
        stream=_FLAG,
        stdin=_FLAG,
        stdout=_FLAG,
        stderr=_FLAG,
    ),
    _call("DELETE", f"/containers/{_NAME}", Kind.CONTAINER, v=_FLAG, force=_FLAG, link=_OFF),
    _call("GET", "/events", Kind.EVENTS, since=_TIME, until=_TIME, filters=_ANY),
    _call(
        "POST",
        "/commit",
        Kind.COMMIT,
        has_body=True,
        container="[A-Za-z0-9][A-Za-z0-9_.-]{0,127}",
        repo=_LAYER,
        tag=_TAG,
        pause="1|true|True",
    ),
    _call(
        "GET",
        "/images/json",
        Kind.IMAGES,
        all=_FLAG,
        only_ids=_OFF,
        filters=_ANY,
    ),
    _call("GET", f"/images/{_IMAGE}/json", Kind.IMAGE),
    _call("DELETE", f"/images/{_IMAGE}", Kind.REMOVE_IMAGE, force=_OFF, noprune=_OFF),
)


def find(method: str, target: str, body: bytes) -> Asked:
    """The row that a request is of. Raises `DroverError` where there is none."""
    path, _, text = target.partition("?")
    try:
        path = unquote_to_bytes(path).decode("ascii")
    except UnicodeDecodeError as error:
        raise malformed("a path that is not ASCII") from error
    path = _VERSION.sub("", path, count=1) if path.startswith("/v") else path
    for call in CALLS:
        if call.method == method and (match := call.path.fullmatch(path)):
            named = match.groupdict().get("named", "")
            if body and not call.has_body:
                raise malformed(f"a body of {method} {path}, which has none")
            return Asked(call, path, named, _query(call, text), body)
    raise denied(f"{method} {path[:200]!r} is nothing that a sandbox needs of an engine")


def _query(call: Call, text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=_MOST_WORDS,
        )
    except ValueError as error:
        raise malformed("a query of another form than key=value&key=value") from error
    found = dict(pairs)
    if len(found) != len(pairs):
        raise malformed("a query that says something twice")
    for word, value in found.items():
        if word not in call.query or not call.query[word].fullmatch(value):
            raise denied(f"{word[:80]}={value[:80]} is nothing that this call may say")
    return found
