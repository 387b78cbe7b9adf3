"""What an MCP server may cost: time, bytes, round trips (case I3)."""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, bytes, characters and counts. What is past a limit is refused, and it is said."""

    connect_seconds: float = 10
    """To connect, TLS included."""
    greet_seconds: float = 8
    """Until a protocol's version is agreed on, the older transport tried."""
    idle_seconds: float = 100
    """Without a byte of an answer."""
    list_seconds: float = 11
    """For a list of tools, with everything that it takes: a turn's start waits for it."""
    call_seconds: float = 110
    """For a call, with everything that it takes: hands wait for 120."""
    close_seconds: float = 2
    unused_seconds: float = 60
    """That a connection is kept for the session's next call."""
    connections: int = 500
    """Of all sessions together."""
    answer_bytes: int = 16 * _MIB
    """Of all pages of a list together, and of all rounds of a call."""
    stream_bytes: int = 64 * _MIB
    """Of a stream that stands for as long as its connection, such as the older transport's."""
    objects: int = 100_000
    """Objects and lists in one answer, counted by their first bytes, those in its texts too: of
    what is small and many the library makes so much that this process does nothing else for long.
    Of a stream that stands four times as many, as of its bytes."""
    events: int = 5_000
    """In the streams of one answer; of a standing stream, over its life."""
    requests: int = 64
    """HTTP requests that a call may bring about: answers to the server's own requests too."""
    rounds: int = 8
    """Times that a call is sent again because the server wants it (`input_required`)."""
    tools: int = 1_000
    pages: int = 100
    name_characters: int = 1_024
    """Of a tool's name, as a call may have it."""
    description_characters: int = 16_384
    blocks: int = 200
    image_bytes: int = 5 * _MIB
    document_bytes: int = 12 * _MIB
