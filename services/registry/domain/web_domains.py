"""Domains that the settings of the web tools may name (SEMANTICS §2).

A domain stands for its subdomains too, so that whatever would cover a whole registry is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Never

from catalogue.hosts import HostError, canonical_host
from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DOMAIN: Final = 255
"""Characters of one entry, its path included."""

_LOCAL: Final = frozenset(
    {"localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "private"}
)
"""Last labels of names that only some network knows."""

_PATH: Final = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*\Z")


def canonical_domains(domains: Iterable[str], path: str, *, with_paths: bool) -> list[str]:
    """The one spelling of each of `domains`, which may have a path behind them `with_paths`.

    Raises INVALID_ARGUMENT naming the entry's place below `path`.
    """
    canonical: list[str] = []
    for index, text in enumerate(domains):
        here = f"{path}.{index}"
        try:
            domain = _canonical(text, with_paths=with_paths)
        except HostError as error:
            _refuse(here, str(error))
        if domain in canonical:
            _refuse(here, f"{domain!r} is listed already")
        canonical.append(domain)
    return canonical


def _canonical(text: str, *, with_paths: bool) -> str:
    if not 1 <= len(text) <= MAX_DOMAIN:
        msg = f"must have 1 to {MAX_DOMAIN} characters"
        raise HostError(msg)
    host, slash, rest = text.partition("/")
    if "://" in text or not with_paths:
        host, slash, rest = text, "", ""
    if "*" in host:
        msg = "must not have a wildcard: a domain stands for its subdomains too"
        raise HostError(msg)
    name = canonical_host(host)
    top = name.rpartition(".")[2]
    if top in _LOCAL or name.endswith(".home.arpa"):
        msg = "must be a public domain, not a name of a private network"
        raise HostError(msg)
    if "." not in name:
        msg = "must be a domain such as example.com, not a single label"
        raise HostError(msg)
    try:
        canonical_host(f"*.{name}")
    except HostError:
        msg = f"{name} would cover a whole registry: name a domain below it"
        raise HostError(msg) from None
    tail = slash + rest.rstrip("/") if rest else ""
    if not tail.isascii() or not _PATH.match(tail):
        msg = "must have a plain path behind the domain, without a query or a fragment"
        raise HostError(msg)
    return name + tail


def _refuse(path: str, text: str) -> Never:
    raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {text}")
