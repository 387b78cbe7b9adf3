"""What the supervisor and its warm process say to each other, one datagram a message."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

# A datagram holds an environment and some paths. Linux allows about 200 KiB by default.
MAX_DATAGRAM = 128 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """One process to start: `main()` of a module, under a name, with an environment of its own.

    `imports` are what the process would import late; the warm process does it before the fork.
    """

    name: str
    module: str
    log: str
    environment: dict[str, str] = field(repr=False)
    imports: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """The order as a datagram."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, datagram: bytes) -> Order:
        """The order in a datagram."""
        fields: dict[str, Any] = json.loads(datagram)
        return cls(**fields | {"imports": tuple(fields["imports"])})


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an order: the pid of a process that runs, or why there is none."""

    pid: int = 0
    error: str = ""

    def encode(self) -> bytes:
        """The answer as a datagram."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, datagram: bytes) -> Answer:
        """The answer in a datagram."""
        fields: dict[str, Any] = json.loads(datagram)
        return cls(**fields)
