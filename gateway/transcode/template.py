"""Path templates of `google.api.http` and the tree that finds a route by a request's path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from gateway.transcode.shape import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")

_LITERAL = re.compile(r"[A-Za-z0-9._~-]+")
_VARIABLE = re.compile(r"\{([a-z][a-z0-9_]*)\}")


class NoRouteError(Exception):
    """No route has this path."""


class WrongVerbError(Exception):
    """Routes have this path, but none with this verb. `allowed` are the verbs that would do."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__(", ".join(allowed))
        self.allowed = allowed


class _Node(Generic[T]):
    """One segment of paths. Endpoints are by verb, with the names of the path's variables."""

    __slots__ = ("endpoints", "literals", "variable")

    def __init__(self) -> None:
        self.endpoints: dict[str, tuple[T, tuple[str, ...]]] = {}
        self.literals: dict[str, _Node[T]] = {}
        self.variable: _Node[T] | None = None


class Router(Generic[T]):
    """Finds endpoints by verb and path; a literal segment goes before a variable one."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, verb: str, template: str, endpoint: T) -> None:
        """Adds an endpoint. Raises `ContractError` if the template is taken or unknown."""
        node = self._root
        names: list[str] = []
        for segment in template.split("/")[1:]:
            if variable := _VARIABLE.fullmatch(segment):
                names.append(variable[1])
                if node.variable is None:
                    node.variable = _Node()
                node = node.variable
            elif _LITERAL.fullmatch(segment):
                node = node.literals.setdefault(segment, _Node())
            else:
                msg = f"{template}: segments are literals or {{names}}"
                raise ContractError(msg)
        if verb in node.endpoints:
            msg = f"{verb} {template} is there twice"
            raise ContractError(msg)
        node.endpoints[verb] = endpoint, tuple(names)

    def find(self, verb: str, raw_path: bytes) -> tuple[T, Mapping[str, str]]:
        """The endpoint and the values of its path's variables.

        `raw_path` is still percent-encoded: `%2F` is part of a segment. What answers GET answers
        HEAD (RFC 9110 §9.1). Raises `NoRouteError` or `WrongVerbError`.
        """
        wanted = "GET" if verb == "HEAD" else verb
        segments = _segments(raw_path)
        allowed: dict[str, None] = {}
        for node, values in _leaves(self._root, segments, 0, ()):
            if wanted in node.endpoints:
                endpoint, names = node.endpoints[wanted]
                return endpoint, dict(zip(names, values, strict=True))
            allowed.update(dict.fromkeys(node.endpoints))
            if "GET" in node.endpoints:
                allowed["HEAD"] = None
        if allowed:
            raise WrongVerbError(tuple(sorted(allowed)))
        raise NoRouteError


def _segments(raw_path: bytes) -> list[str]:
    try:
        return [unquote_to_bytes(segment).decode() for segment in raw_path.split(b"/")[1:]]
    except UnicodeDecodeError:
        raise NoRouteError from None


def _leaves(
    node: _Node[T], segments: list[str], at: int, values: tuple[str, ...]
) -> Iterator[tuple[_Node[T], tuple[str, ...]]]:
    """Nodes that the whole path leads to, the most literal one first."""
    if at == len(segments):
        yield node, values
        return
    segment = segments[at]
    if (literal := node.literals.get(segment)) is not None:
        yield from _leaves(literal, segments, at + 1, values)
    if segment and node.variable is not None:
        yield from _leaves(node.variable, segments, at + 1, (*values, segment))
