"""Where a channel leads: to one address, or to every replica of a service."""

from __future__ import annotations

import json
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, Final

_LOCALHOST: Final = "127.0.0.1"

# A new replica is found within a second of a failed call, not within thirty.
_DNS_PACE: Final = ("grpc.dns_min_time_between_resolutions_ms", 1_000)
_RETRY_ONCE: Final = {
    "maxAttempts": 2,
    "initialBackoff": "0.02s",
    "maxBackoff": "0.1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}


def resolve(address: str, retried: Iterable[str] = ()) -> tuple[str, list[tuple[str, Any]]]:
    """The gRPC target of `address`, and the channel options that go with it.

    Several addresses, comma separated (`10.0.0.1:7000,10.0.0.2:7000`), and all that a name stands
    for (`dns:///session:7000`) are called in turns, those that answer. The methods in `retried`
    (`package.Service/Method`) are called once more when a replica is UNAVAILABLE: for reads alone.
    Raises `ValueError` for a list of names, since gRPC resolves one only.
    """
    parts = [part.strip() for part in address.split(",") if part.strip()]
    options: list[tuple[str, Any]] = []
    config: dict[str, Any] = {}
    where = "".join(parts)
    if len(parts) > 1:
        where, authority = _listed(parts)
        options.append(authority)
    elif where.startswith("dns:"):
        options.append(_DNS_PACE)
    if options:
        config["loadBalancingConfig"] = [{"round_robin": {}}]
    if names := [dict(zip(("service", "method"), one.split("/"), strict=True)) for one in retried]:
        config["methodConfig"] = [{"name": names, "retryPolicy": _RETRY_ONCE}]
    # Other retries belong to one policy per dependency, in the caller.
    options.append(("grpc.enable_retries", int(bool(names))))
    return where, [*options, ("grpc.service_config", json.dumps(config))]


def _listed(parts: list[str]) -> tuple[str, tuple[str, str]]:
    hosts = [_numeric(part) for part in parts]
    kinds = {version for version, _ in hosts}
    if len(kinds) > 1:
        msg = f"{','.join(parts)}: addresses of IPv4 and of IPv6 do not go together"
        raise ValueError(msg)
    listed = [shown for _, shown in hosts]
    # A server would refuse the whole list for the name that it is called by.
    return f"ipv{kinds.pop()}:{','.join(listed)}", ("grpc.default_authority", listed[0])


def _numeric(address: str) -> tuple[int, str]:
    host, _, port = address.rpartition(":")
    shown = _LOCALHOST if host == "localhost" else host
    try:
        return ip_address(shown.strip("[]")).version, f"{shown}:{port}"
    except ValueError:
        msg = f"{address}: of several addresses each is an IP address; a name is dns:///NAME:PORT"
        raise ValueError(msg) from None
