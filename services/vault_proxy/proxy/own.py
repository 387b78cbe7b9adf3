"""Where Drover itself listens, which no sandbox may reach, whatever is opened (ARCHITECTURE §7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from chassis.settings import host_and_port
from services.vault_proxy.domain.addresses import OwnAddress, own_address

if TYPE_CHECKING:
    from services.vault_proxy.domain.addresses import Address

_POSTGRESQL: Final = 5432
_LOCAL_IPV4: Final = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")
_NET: Final = Path("/proc/net")


def own_addresses(targets: Iterable[str], databases: Iterable[str] = ()) -> tuple[OwnAddress, ...]:
    """Of gRPC targets (`host:port`, `dns:///host:port`, lists of these) and databases' URLs.

    Raises `ValueError` for a target that is none.
    """
    found = [*_of_targets(targets), *_of_databases(databases)]
    return tuple(dict.fromkeys(found))


def local_addresses(net: Path = _NET) -> tuple[Address, ...]:
    """The addresses of this machine's interfaces, as they are now."""
    found: list[Address] = []
    try:
        trie = (net / "fib_trie").read_text(encoding="ascii")
        found += [ip_address(text) for text in _LOCAL_IPV4.findall(trie)]
    except OSError:
        pass  # a kernel without IPv4
    try:
        lines = (net / "if_inet6").read_text(encoding="ascii").splitlines()
        found += [IPv6Address(int(line.split()[0], 16)) for line in lines]
    except OSError:
        pass  # a kernel without IPv6
    return tuple(dict.fromkeys(found))


def _of_targets(targets: Iterable[str]) -> Iterator[OwnAddress]:
    for target in targets:
        for part in target.split(","):
            text = re.sub(r"\A(dns:///?(/[^/]*/)?|ipv[46]:)", "", part.strip())
            if not text or text.startswith("unix:"):
                continue
            host, port = host_and_port(text)
            if port:
                yield own_address(host, port)


def _of_databases(urls: Iterable[str]) -> Iterator[OwnAddress]:
    for url in urls:
        scheme, _, rest = url.partition("://")
        if not scheme.startswith("postgres"):
            continue
        parts = urlsplit(f"postgresql://{rest}")
        hosts = parts.netloc.rpartition("@")[2]
        for listed in parse_qs(parts.query).get("host", [hosts]):
            for one in listed.split(","):
                if one and not one.startswith("/"):
                    yield _database(one)


def _database(host: str) -> OwnAddress:
    try:
        return own_address(*host_and_port(host))
    except ValueError:
        return own_address(host, _POSTGRESQL)
