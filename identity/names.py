"""The name by which a certificate says whose it is: its one DNS name."""

from __future__ import annotations

from typing import Final

from identity.table import Caller

_DOMAIN: Final = ".drover.internal"
_CALLERS: Final = {f"{one.replace('_', '-')}{_DOMAIN}": one for one in Caller}
_NAMES: Final = {caller: name for name, caller in _CALLERS.items()}


def name_of(caller: str) -> str:
    """The DNS name of a caller: `vault-proxy.drover.internal` is the vault proxy's.

    Raises `ValueError` for one that there is not.
    """
    return _NAMES[Caller(caller)]


def caller_of(name: str) -> Caller | None:
    """The caller that a DNS name is of."""
    return _CALLERS.get(name)
