"""URLs of MCP servers, compared by their normalised form."""

from __future__ import annotations

from catalogue.hosts import parse_url


def normalised(url: str) -> str:
    """The one spelling by which servers are told apart (SEMANTICS §9).

    Scheme and host in lower case, without the default port and a trailing slash; path, query,
    subdomain and any other port count as they are. Raises `catalogue.hosts.HostError` for what is
    no `http` or `https` URL.
    """
    parsed = parse_url(url)
    query = f"?{parsed.query}" if parsed.query else ""
    path = parsed.path if query else parsed.path.removesuffix("/")
    return f"{parsed.scheme}://{parsed.host.with_port(parsed.port, parsed.scheme)}{path}{query}"
