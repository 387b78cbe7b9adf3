"""Which addresses may be dialled (case E8).

A name is allowed first and resolved then; where it leads to is judged here, and that same address
is dialled. Judged is what an address means: one that carries another inside (mapped, translated,
tunnelled) is refused where either is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from services.vault_proxy.domain.refusal import Refusal, Why

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

WEB_PORTS: Final = frozenset({80, 443})
_MAX_PORT: Final = 65_535
_SETTING: Final = "DROVER_EGRESS_ALLOW_PRIVATE"

# Special purposes: the registries of IANA (RFC 6890 and its successors), and what clouds answer
# metadata at besides the link-local one.
_CLOSED: Final[tuple[tuple[str, str], ...]] = (
    ("0.0.0.0/8", "this host"),
    ("10.0.0.0/8", "a private network"),
    ("100.64.0.0/10", "a carrier's shared network"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local, where clouds answer metadata"),
    ("172.16.0.0/12", "a private network"),
    ("192.0.0.0/24", "protocol assignments"),
    ("192.0.2.0/24", "documentation"),
    ("192.31.196.0/24", "AS112"),
    ("192.52.193.0/24", "AMT"),
    ("192.88.99.0/24", "6to4 relays"),
    ("192.168.0.0/16", "a private network"),
    ("192.175.48.0/24", "AS112"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("168.63.129.16/32", "a cloud's own services"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("::/8", "this host, or an address inside another"),
    ("100::/64", "discarded"),
    ("100:0:0:1::/64", "discarded"),
    ("2001::/23", "protocol assignments"),
    ("2001:db8::/32", "documentation"),
    ("3fff::/20", "documentation"),
    ("5f00::/16", "segment routing"),
    ("fc00::/7", "a private network"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "a private network"),
    ("ff00::/8", "multicast"),
)
_GLOBAL: Final = IPv6Network("2000::/3")
"""All that is given out of IPv6 for the internet."""
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")  # RFC 6052
_TRANSLATED_LOCALLY: Final = IPv6Network("64:ff9b:1::/48")  # RFC 8215
_LOW_32: Final = 0xFFFFFFFF
_ISATAP: Final = (0x00005EFE, 0x02005EFE)  # RFC 5214 §6.1


@dataclass(frozen=True, slots=True)
class Opening:
    """A network that the operator opens, at one port or, without, at the web's."""

    network: Network
    port: int | None = None

    def holds(self, address: Address, port: int) -> bool:
        """Whether that address and port are opened."""
        right = port in WEB_PORTS if self.port is None else port == self.port
        return right and address.version == self.network.version and address in self.network


@dataclass(frozen=True, slots=True)
class OwnAddress:
    """Where a part of Drover listens. No address means every one of this machine's.

    `named`: it was given by a name, which may lead anywhere, and elsewhere tomorrow. It keeps its
    port closed at every address that is not public, and at those too unless the port is the web's.
    """

    port: int
    address: Address | None = None
    named: bool = False


def openings(text: str) -> tuple[Opening, ...]:
    """What `DROVER_EGRESS_ALLOW_PRIVATE` opens: `127.0.0.1/32:9000, 10.2.0.0/16, [fd00::/8]:80`.

    Raises `ValueError`, which says what is amiss.
    """
    return tuple(_opening(entry.strip()) for entry in text.split(",") if entry.strip())


class AddressRules:
    """See `domain.ports.Addresses`.

    `own` are the addresses of Drover's parts, which nothing opens; `here` those of this machine.
    """

    def __init__(
        self,
        opened: Sequence[Opening],
        own: Iterable[OwnAddress] = (),
        here: Iterable[Address] = (),
    ) -> None:
        self._opened = tuple(opened)
        self._ports = frozenset(one.port for one in opened if one.port is not None) | WEB_PORTS
        self._here = frozenset(here)
        given = tuple(own)
        self._own = frozenset((one.port, one.address) for one in given if not one.named)
        self._named = frozenset(one.port for one in given if one.named)
        self._closed = tuple((ip_network(text), what) for text, what in _CLOSED)

    def port_is_possible(self, port: int) -> bool:
        """Whether any address at all may be dialled at that port (case E12)."""
        return port in self._ports

    def judge(self, address: Address, port: int) -> Refusal | None:
        """Why that address and port may not be dialled, or `None`."""
        meant = _meanings(address)
        if any(self._is_own(one, port) for one in meant):
            return Refusal(
                Why.OWN_ADDRESS,
                f"{address} port {port} is Drover's own: nothing can allow it",
            )
        if any(opening.holds(address, port) for opening in self._opened):
            return None
        for one in meant:
            if (what := self._purpose(one)) is not None:
                return Refusal(
                    Why.ADDRESS_NOT_ALLOWED,
                    f"the host is at {address}, which is not public ({what}): the operator "
                    f"can allow {_written(address, port)} in {_SETTING}",
                )
        if port not in WEB_PORTS:
            return port_refusal(port, _written(address, port))
        return None

    def judge_in_clear(self, address: Address, port: int) -> Refusal | None:
        """Why a secret may not be sent to that address and port without TLS, or `None`.

        It may where the address is none of the internet's, and the operator has listed it.
        """
        if (refusal := self.judge(address, port)) is not None:
            return refusal
        public = any(self._purpose(one) is None for one in _meanings(address))
        if not public and any(opening.holds(address, port) for opening in self._opened):
            return None
        return Refusal(
            Why.ADDRESS_NOT_ALLOWED,
            f"the credential was not sent: the URL begins with http://, and the host is at "
            f"{address}, so everybody on the way could read it: give an https:// URL (http:// is "
            f"for loopback and private networks that the operator lists in {_SETTING})",
        )

    def _is_own(self, address: Address, port: int) -> bool:
        if (port, address) in self._own:
            return True
        if port in self._named and (port not in WEB_PORTS or self._purpose(address) is not None):
            return True
        local = address.is_loopback or address.is_unspecified or address in self._here
        return local and (port, None) in self._own

    def _purpose(self, address: Address) -> str | None:
        """What a closed network is for; `None` for a public address."""
        for network, what in self._closed:
            if address.version == network.version and address in network:
                return what
        if address.version == _GLOBAL.version and address not in _GLOBAL:
            return "reserved"
        return None


class InClear:
    """See `domain.ports.Addresses`: for connections without TLS by which secrets are sent."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules

    def judge(self, address: Address, port: int) -> Refusal | None:
        """As the rules judge it for those."""
        return self._rules.judge_in_clear(address, port)


def port_refusal(port: int, example: str) -> Refusal:
    """Refuses a port that is not the web's."""
    return Refusal(
        Why.PORT_NOT_ALLOWED,
        f"port {port} is not allowed: hosts are reached at ports 80 and 443, at another only "
        f"where the operator lists address and port, such as {example}, in {_SETTING}",
    )


def _meanings(address: Address) -> tuple[Address, ...]:
    """The address, and those of IPv4 that it carries inside."""
    if isinstance(address, IPv4Address):
        return (address,)
    bits = int(address)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)  # the same socket address, for every purpose
    inside: list[Address] = []
    if address in _TRANSLATED or address in _TRANSLATED_LOCALLY or bits <= _LOW_32:
        inside.append(IPv4Address(bits & _LOW_32))
    if address.sixtofour is not None:
        inside.append(address.sixtofour)
    if address.teredo is not None:
        inside.extend(address.teredo)
    if bits >> 32 & _LOW_32 in _ISATAP:
        inside.append(IPv4Address(bits & _LOW_32))
    # What only translates is as public as what it leads to.
    return (*(() if address in _TRANSLATED else (address,)), *inside)


def _written(address: Address, port: int) -> str:
    if isinstance(address, IPv6Address):
        return f"[{address}/128]:{port}"
    return f"{address}/32:{port}"


def _opening(entry: str) -> Opening:
    text, digits = entry, ""
    if entry.startswith("["):
        text, closed, rest = entry[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise _bad(entry)
        digits = rest[1:]
        if rest and not digits:
            raise _bad(entry)
    elif entry.count(":") == 1:
        text, _, digits = entry.partition(":")
        if not digits:
            raise _bad(entry)
    port: int | None = None
    if digits:
        port = int(digits) if digits.isascii() and digits.isdigit() else 0
        if not 0 < port <= _MAX_PORT:
            raise _bad(entry)
    try:
        network = ip_network(text)
    except ValueError:
        raise _bad(entry) from None
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise _bad(entry)
    return Opening(network, port)


def _bad(entry: str) -> ValueError:
    return ValueError(
        f"{entry!r} is no network with an optional port: write 127.0.0.1/32:9000, 10.2.0.0/16 or "
        "[fd00::/8]:8080"
    )


def own_address(host: str, port: int) -> OwnAddress:
    """What `host` and `port`, from a setting, stand for."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return OwnAddress(port, named=host != "localhost")
    return OwnAddress(port, None if address.is_unspecified or address.is_loopback else address)
