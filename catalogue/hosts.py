"""The one reading of hosts: of URLs, `CONNECT` targets, `Host` headers, SNI, and lists of hosts.

Whatever is written somewhere as a host becomes one canonical spelling, which policy, dialler,
certificate and log all see, or is refused with the reason (case E3). Numbers are an address in
their standard form alone: what only some resolvers read as an address is no host at all.

`IPv4Address` and its like in text: RFC 3986 §3.2.2, RFC 5952; names: RFC 1123 §2.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Literal, NamedTuple

_MAX_NAME: Final = 253  # RFC 1035 §2.3.4, without the root's dot
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")  # RFC 1123 §2.1
_NUMBER: Final = re.compile(r"([0-9]+|0x[0-9a-f]*)\Z")
_QUAD: Final = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})\Z")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}\Z")
_MAX_PORT: Final = 65_535
_ACE: Final = "xn--"
_URL: Final = re.compile(r"(https?)://([^/?#\\]*)([^?#]*)(\?[^#]*)?\Z", re.IGNORECASE)
_PRINTABLE: Final = re.compile(r"[!-~]*\Z")
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class HostError(ValueError):
    """A text that is no host; its message says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host in its canonical spelling: a name in lower case, or an IP address.

    Equal hosts have equal `text`, which reads as the same host again.
    """

    text: str
    address: IPv4Address | IPv6Address | None = None

    def __str__(self) -> str:
        """As in a URL: an IPv6 address in brackets."""
        return f"[{self.text}]" if isinstance(self.address, IPv6Address) else self.text

    def with_port(self, port: int, scheme: str) -> str:
        """As in a `Host` header: the port is left out where it is the scheme's own."""
        return str(self) if DEFAULT_PORTS.get(scheme) == port else f"{self}:{port}"


class Url(NamedTuple):
    """A URL taken apart. `path` begins with a slash; `query` has no question mark."""

    scheme: Literal["http", "https"]
    host: Host
    port: int
    path: str
    query: str


def parse_host(text: str | bytes) -> Host:
    """The host that `text` is, without a port; an IPv6 address with brackets or without.

    Raises `HostError`.
    """
    lowered = _ascii(text).lower()
    if not _is_name(lowered):
        return _parse_unusual(lowered)
    _check_ace(lowered)
    return Host(lowered)


def parse_authority(text: str | bytes, default_port: int | None = None) -> tuple[Host, int]:
    """The host and port of `host:port`; without a default the port must be there.

    Raises `HostError`.
    """
    authority = _ascii(text)
    bracket = authority.rfind("]") + 1
    host, colon, digits = authority[bracket:].partition(":")
    host = authority[:bracket] + host
    if ":" in digits:
        msg = "must have an IPv6 address in brackets"
        raise HostError(msg)
    port = default_port or 0
    if colon:
        port = int(digits) if _PORT.match(digits) else 0
    if not 0 < port <= _MAX_PORT:
        msg = "must have a port from 1 to 65535" if colon else "must have a port"
        raise HostError(msg)
    return parse_host(host), port


def parse_url(text: str) -> Url:
    """An `http` or `https` URL. One with user information or a fragment is refused.

    Raises `HostError`.
    """
    if not _PRINTABLE.match(text):
        msg = "must be printable ASCII without spaces: write other characters in %-escapes"
        raise HostError(msg)
    found = _URL.match(text)
    if found is None or not found[2]:
        msg = "must be an http or https URL, without a fragment"
        raise HostError(msg)
    if "\\" in found[3]:
        msg = "must not have a backslash in its path"
        raise HostError(msg)
    if "@" in found[2]:
        msg = "must be a bare host, without user information"
        raise HostError(msg)
    scheme: Literal["http", "https"] = "https" if found[1].lower() == "https" else "http"
    host, port = parse_authority(found[2], DEFAULT_PORTS[scheme])
    return Url(scheme, host, port, found[3] or "/", (found[4] or "?")[1:])


def canonical_host(text: str) -> str:
    """The one spelling of a listed host (SEMANTICS §6): a name, exact or `*.` and a domain.

    An address is refused, so that a listed host is always a name, and where that leads is always
    looked up and judged. So is a wildcard for a whole registry, such as `*.com` (case E10). Raises
    `HostError`.
    """
    if not text.isascii():  # before lower(), which makes an ASCII k of a Kelvin sign
        msg = "must be ASCII: write an internationalised name in its xn-- form"
        raise HostError(msg)
    lowered = text.lower()
    name = lowered.removeprefix("*.")
    _refuse_address_parts(name)
    if not _is_name(name):
        msg = "must be a host name such as example.com or *.example.com"
        if _NUMBER.match(name.rpartition(".")[2]):
            msg = "must be a host name, not an IP address"
        raise HostError(msg)
    _check_ace(name)
    if name != lowered:
        # The list of registries is read once, by who lists a wildcard.
        from catalogue.registries import is_registry  # noqa: PLC0415

        if is_registry(name):
            msg = f"*.{name} would cover a whole registry: name a domain below it"
            raise HostError(msg)
    return lowered


def _ascii(text: str | bytes) -> str:
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    if not text.isascii():
        msg = "must be ASCII: write an internationalised name in its xn-- form"
        raise HostError(msg)
    if not _PRINTABLE.match(text):
        msg = "must have neither spaces nor control characters"
        raise HostError(msg)
    return text


def _is_name(text: str) -> bool:
    if len(text) > _MAX_NAME or not all(map(_LABEL.match, text.split("."))):
        return False
    return not _NUMBER.match(text.rpartition(".")[2])


def _parse_unusual(text: str) -> Host:
    """An address, or the reason why it is nothing."""
    if _QUAD.match(text):
        return _address(IPv4Address, text)
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare and "]" not in bare and "[" not in bare:
        if "%" in bare:
            msg = "must be an address without a zone"
            raise HostError(msg)
        return _address(IPv6Address, bare)
    for character, what in _TELLTALES.items():
        if character in text:
            msg = f"must be a bare host, without {what}"
            raise HostError(msg)
    if _NUMBER.match(text.rpartition(".")[2]):
        msg = "must be a host name, or an IP address in its standard form"
    elif text.endswith("."):
        msg = "must be a host name without a dot at its end"
    else:
        msg = "must be a host name such as example.com"
    raise HostError(msg)


_TELLTALES: Final = {
    "@": "user information",
    "%": "%-escapes",
    "#": "a fragment",
    "/": "a path",
    "\\": "a backslash",
    "?": "a query",
    ":": "a port",
    "*": "a wildcard",
}


def _address(kind: type[IPv4Address | IPv6Address], text: str) -> Host:
    try:
        address = kind(text)
    except ValueError:
        msg = "must be a host name, or an IP address in its standard form"
        raise HostError(msg) from None
    return Host(str(address), address)


def _check_ace(name: str) -> None:
    """Refuses labels that only look internationalised: what they mean is anybody's guess."""
    if _ACE not in name:
        return
    for label in name.split("."):
        if not label.startswith(_ACE):
            continue
        try:
            meant = label[len(_ACE) :].encode().decode("punycode")
            told = _ACE.encode() + meant.encode("punycode")
        except (UnicodeError, OverflowError):
            meant, told = "", b""
        if meant.isascii() or told != label.encode():
            msg = f"must not have the label {label}, which is no internationalised one"
            raise HostError(msg)


def _refuse_address_parts(name: str) -> None:
    """Says plainly what is wrong with the usual mistakes: URLs, ports, paths, misplaced `*`."""
    if "://" in name:
        msg = "must be a bare host name, without a scheme"
    elif "/" in name or "?" in name or "#" in name:
        msg = "must be a bare host name, without a path"
    elif "@" in name:
        msg = "must be a bare host name, without user information"
    elif name.count(":") > 1 or "[" in name:
        msg = "must be a host name, not an IP address"
    elif ":" in name:
        msg = "must be a bare host name, without a port"
    elif "*" in name:
        msg = "may have one wildcard only, as its whole first label: *.example.com"
    else:
        return
    raise HostError(msg)
