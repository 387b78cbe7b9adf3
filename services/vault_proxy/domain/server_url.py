"""URLs of MCP servers: checked when a credential is saved, compared by their normalised form."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

_PORTS: Final = {"https": 443, "http": 80}
_HOST: Final = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?\Z|\[[0-9a-f:.]+\]\Z")
_PLAIN: Final = re.compile(r"[!-~]+\Z")
_LAST_PORT: Final = 65_535


class UrlError(ValueError):
    """A text that is no URL of a server; its message says why, without the text."""


def normalised(url: str) -> str:
    """The one spelling by which servers are told apart (SEMANTICS §9).

    Scheme and host in lower case, without the default port and a trailing slash; path, subdomain
    and any other port count as they are. Raises `UrlError`.
    """
    if not _PLAIN.match(url) or "\\" in url:
        msg = "must be a URL of visible ASCII characters"
        raise UrlError(msg)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        msg = "must be a URL such as https://mcp.example.com/mcp"
        raise UrlError(msg) from None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not parts.netloc:
        msg = "must be a URL that begins with https:// or http://"
        raise UrlError(msg)
    if "@" in parts.netloc:
        msg = "must hold no user name and no password"
        raise UrlError(msg)
    if parts.fragment or url.endswith("#"):
        msg = "must have no fragment"
        raise UrlError(msg)
    host = _host(parts.netloc)
    if port is not None and not 0 < port <= _LAST_PORT:
        msg = "must have a port between 1 and 65535"
        raise UrlError(msg)
    shown = "" if port in {None, _PORTS[scheme]} else f":{port}"
    query = f"?{parts.query}" if parts.query else ""
    path = parts.path if query else parts.path.removesuffix("/")
    return f"{scheme}://{host}{shown}{path}{query}"


def _host(netloc: str) -> str:
    name = netloc.lower()
    if not name.endswith("]"):
        head, colon, tail = name.rpartition(":")
        name = head if colon and (not tail or tail.isdigit()) else name
    name = name.removesuffix(".")
    if not _HOST.match(name):
        msg = "must name a host"
        raise UrlError(msg)
    return name
