"""Sets of listed hosts."""

from __future__ import annotations

from collections.abc import Iterable

from catalogue.hosts import Host


class HostList:
    """Hosts by their patterns in canonical form (`catalogue.hosts.canonical_host`).

    A pattern without `*.` is that name alone. `*.example.com` is every name below `example.com`,
    at any depth, and not `example.com` itself; labels are compared as wholes (case E10).
    """

    __slots__ = ("_below", "_exact")

    def __init__(self, patterns: Iterable[str]) -> None:
        listed = tuple(patterns)
        self._below = frozenset(text[2:] for text in listed if text.startswith("*."))
        self._exact = frozenset(text for text in listed if not text.startswith("*."))

    def __contains__(self, host: Host) -> bool:
        """Whether it is listed. An address is so by its canonical text alone."""
        if host.text in self._exact:
            return True
        if not self._below or host.address is not None:
            return False
        name = host.text
        while name:
            name = name.partition(".")[2]
            if name in self._below:
                return True
        return False

    def __bool__(self) -> bool:
        return bool(self._exact or self._below)

    def meets(self, pattern: str) -> bool:
        """Whether anything that `pattern` stands for is in the list."""
        if not pattern.startswith("*."):
            return Host(pattern) in self
        wide = pattern[1:]
        return (
            any(name.endswith(wide) for name in self._exact)
            or any(f".{name}".endswith(wide) for name in self._below)
            or any(wide.endswith(f".{name}") for name in self._below)
        )
