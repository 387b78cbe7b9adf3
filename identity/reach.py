"""Whether what is sent to an address could be read on its way."""

from __future__ import annotations

from ipaddress import ip_address


def stays_here(addresses: str) -> bool:
    """Whether nothing sent to gRPC targets, one or several, leaves this machine."""
    return all(_is_local(one.strip()) for one in addresses.split(","))


def _is_local(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    host = address.removeprefix("dns:").lstrip("/").rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
