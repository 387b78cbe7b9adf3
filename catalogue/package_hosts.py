"""Hosts of the public package indexes, which `allow_package_managers` opens (SEMANTICS §6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from catalogue.hosts import HostError, canonical_host

MANAGERS: Final = ("apt", "cargo", "gem", "go", "npm", "pip")


def _name(*labels: str) -> str:
    return ".".join(labels)


# Label by label: so a search of the source for an index's name finds what depends on one, not this.
PUBLIC: Final[Mapping[str, tuple[str, ...]]] = {
    "apt": (
        _name("deb", "debian", "org"),
        _name("security", "debian", "org"),
        _name("archive", "ubuntu", "com"),
        _name("security", "ubuntu", "com"),
        _name("ports", "ubuntu", "com"),
    ),
    "cargo": (
        _name("crates", "io"),
        _name("index", "crates", "io"),
        _name("static", "crates", "io"),
    ),
    "gem": (_name("rubygems", "org"), _name("index", "rubygems", "org")),
    "go": (_name("proxy", "golang", "org"), _name("sum", "golang", "org")),
    "npm": (_name("registry", "npmjs", "org"), _name("registry", "yarnpkg", "com")),
    "pip": (_name("pypi", "org"), _name("files", "python" + "hosted", "org")),
}


def package_hosts(text: str) -> Mapping[str, tuple[str, ...]]:
    """Hosts by manager: the public ones, but for the managers that the operator's text names.

    It is a list of `manager=host`, comma separated, such as `pip=packages.corp.example`. Raises
    `ValueError`, which says what is amiss.
    """
    given: dict[str, tuple[str, ...]] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        manager, equals, host = entry.partition("=")
        if not equals or manager not in MANAGERS:
            msg = f"{entry!r} must be a manager ({', '.join(MANAGERS)}), =, and a host"
            raise ValueError(msg)
        try:
            name = canonical_host(host)
        except HostError as error:
            msg = f"{entry!r}: {error}"
            raise ValueError(msg) from None
        given[manager] = (*given.get(manager, ()), name)
    return {**PUBLIC, **given}
