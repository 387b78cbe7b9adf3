"""Hosts that a limited environment may list (SEMANTICS §6): bare names, exact or `*.` and a domain.

Numbers are refused in every notation that a resolver reads as an address, so that a listed host is
always a name and the address behind it is always looked up and judged by the egress proxy.
"""

from __future__ import annotations

import re

_MAX_NAME = 253  # RFC 1035 §2.3.4, without the root's dot
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")  # RFC 1123 §2.1
_NUMBER = re.compile(r"([0-9]+|0x[0-9a-f]*)\Z")

# Second-level labels under which country registries sell names. A registrar's full list is longer
# and changes weekly; these cover the registries where `*.co.uk` would mean most of a country.
_REGISTRY_LABELS = frozenset(
    {"ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "gv", "ind", "ltd", "me"}
    | {"mil", "ne", "net", "nom", "or", "org", "plc", "sch", "web"}
)
_COUNTRY_LENGTH = 2


class HostError(ValueError):
    """A text that is no host an environment may list; its message says why."""


def canonical_host(text: str) -> str:
    """The one spelling of a listed host: lower case, with its `*.` if it has one.

    Raises `HostError`.
    """
    if not text.isascii():  # before lower(), which makes an ASCII k of a Kelvin sign
        msg = "must be ASCII: write an internationalised name in its xn-- form"
        raise HostError(msg)
    lowered = text.lower()
    name = lowered.removeprefix("*.")
    _refuse_address_parts(name)
    labels = name.split(".")
    if len(name) > _MAX_NAME or not all(map(_LABEL.match, labels)):
        msg = "must be a host name such as example.com or *.example.com"
        raise HostError(msg)
    if _NUMBER.match(labels[-1]):
        msg = "must be a host name, not an IP address"
        raise HostError(msg)
    if name != lowered and _is_registry_suffix(labels):
        msg = f"*.{name} would cover a whole registry: name a domain below it"
        raise HostError(msg)
    return lowered


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


def _is_registry_suffix(labels: list[str]) -> bool:
    """Whether names directly below these labels belong to different owners."""
    *second, top = labels
    country_registry = len(top) == _COUNTRY_LENGTH and {*second} <= _REGISTRY_LABELS
    return not second or (len(second) == 1 and country_registry)
