"""How long and how much a sandbox may make the proxy wait and hold (case E13)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, but for what is counted. Memory per connection is bounded by the wires' buffers."""

    preamble_seconds: float = 10.0
    head_seconds: float = 20.0
    """From a head's first byte to its last."""
    idle_seconds: float = 120.0
    """Without a request, on a connection that is kept."""
    piece_seconds: float = 300.0
    """Without a byte of a request's body, or without one of an answer being taken."""
    connect_seconds: float = 10.0
    """To resolve, to connect and to shake hands."""
    answer_seconds: float = 600.0
    """Without a byte of an answer: models may think for minutes."""
    tunnel_seconds: float = 3600.0
    """Without a byte either way in a tunnel."""
    recheck_seconds: float = 1.0
    """Between looks at whether a tunnel is still allowed (case E16)."""
    connections: int = 4096
    connections_per_session: int = 256
