"""What a request asks for, as far as a decision needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from catalogue.hosts import Host

Scheme = Literal["http", "https"]


@dataclass(frozen=True, slots=True)
class Target:
    """One request, parsed strictly; a `CONNECT` has an empty `path`.

    `scheme` is `https` inside a terminated tunnel and for a `CONNECT`; a WebSocket is a `GET` of
    its scheme. `path` is as sent and without the query, which no decision is taken by and no record
    keeps.
    """

    method: str
    scheme: Scheme
    host: Host
    port: int
    path: str
    query: str = ""
