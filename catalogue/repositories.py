"""Repositories as sessions name them, and the hosts that they may be of (SEMANTICS §8).

A repository has one spelling, `https://host/owner/name`: what a session is given, what its
sandboxes ask for and what the vault proxy lets through are compared as text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from catalogue.hosts import HostError, parse_url

DEFAULT_HOSTS: Final = "github.com=https://github.com"
"""The git hosts of an installation that names none."""

UNAUTHENTICATED: Final = "The git host did not take the token of this repository (401)"
FORBIDDEN: Final = "The git host does not let the token of this repository do that (403)"
NOT_FOUND: Final = "The git host has no such repository, or does not show it to its token (404)"
"""How the vault proxy's answers to git begin, and what `git` prints behind `remote: ` therefore."""

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")
_DOTS: Final = re.compile(r"\.+\Z")
_SCHEME: Final = "https://"


class RepositoryError(ValueError):
    """A text that names no repository, or no git host; its message says why."""


def parse_hosts(text: str) -> Mapping[str, str]:
    """The upstream of every git host: `host=scheme://host[:port]`, separated by commas.

    Raises `RepositoryError`.
    """
    found: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, maps, upstream = entry.partition("=")
        if not maps:
            bare = entry.removeprefix(_SCHEME).rstrip("/")
            msg = f"{entry}: write {bare}={_SCHEME}{bare}"
            raise RepositoryError(msg)
        try:
            host = parse_url(f"{_SCHEME}{name.strip()}")
            to = parse_url(upstream.strip())
        except HostError as error:
            msg = f"{entry}: {error}"
            raise RepositoryError(msg) from None
        if host.port != 443 or host.path != "/" or host.query or host.host.address is not None:  # noqa: PLR2004
            msg = f"{entry}: a git host is a name, without port and path"
            raise RepositoryError(msg)
        if to.path != "/" or to.query:
            msg = f"{entry}: must map to scheme://host or scheme://host:port"
            raise RepositoryError(msg)
        if host.host.text in found:
            msg = f"{entry}: {host.host} is there twice"
            raise RepositoryError(msg)
        found[host.host.text] = f"{to.scheme}://{to.host.with_port(to.port, to.scheme)}"
    return MappingProxyType(found)


def checked_hosts(text: str) -> str:
    """The setting as it was given. Raises `RepositoryError`."""
    parse_hosts(text)
    return text


def canonical_repository(url: str, hosts: Collection[str] | None) -> str:
    """The one spelling of a repository's URL, on one of the hosts; `None` stands for any.

    Raises `RepositoryError`.
    """
    if not url.lower().startswith(_SCHEME):
        msg = "must be an https URL such as https://github.com/owner/repository"
        raise RepositoryError(msg)
    try:
        parsed = parse_url(url)
    except HostError as error:
        raise RepositoryError(str(error)) from None
    if parsed.port != 443 or parsed.query or "?" in url:  # noqa: PLR2004
        msg = "must have neither a port nor a query"
        raise RepositoryError(msg)
    owner, _, name = parsed.path[1:].partition("/")
    for segment in (owner, name):
        if not _SEGMENT.match(segment) or _DOTS.match(segment):
            msg = f"must have the path of one repository: {_SCHEME}{parsed.host}/owner/repository"
            raise RepositoryError(msg)
    if name.lower().endswith(".git"):
        msg = "must be given without .git at its end"
        raise RepositoryError(msg)
    if hosts is not None and parsed.host.text not in hosts:
        known = ", ".join(hosts) or "none"
        msg = f"{parsed.host} is no git host of this installation (DROVER_GIT_HOSTS: {known})"
        raise RepositoryError(msg)
    return f"{_SCHEME}{parsed.host.text}/{owner}/{name}"
