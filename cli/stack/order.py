"""What the supervisor and its warm process say to each other, one datagram a message."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import Any

# A datagram holds names and some paths.
MAX_DATAGRAM = 128 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """One process to start: `main()` of a module, under a name, with an environment of its own.

    `imports` are what the process would import late; the warm process does it before the fork.
    `stop_seconds` are those within which it has stopped once it is told to.
    """

    name: str
    module: str
    log: str
    environment: dict[str, str] = field(repr=False)
    imports: tuple[str, ...] = ()
    stop_seconds: float = 10.0

    def encode(self) -> bytes:
        """The order as a datagram, but for its environment."""
        return json.dumps(asdict(self) | {"environment": {}}).encode()

    def sealed(self) -> int:
        """A descriptor of a file in memory that has the environment, for `opened`."""
        descriptor = os.memfd_create("environment")
        os.write(descriptor, json.dumps(self.environment).encode())
        return descriptor

    def opened(self, descriptor: int) -> Order:
        """The order with the environment in there, which is closed.

        For the ordered process alone: what the warm process has read, of secrets too, would be in
        the memory of all that it forks later.
        """
        with os.fdopen(descriptor, "rb") as file:
            file.seek(0)
            return replace(self, environment=json.load(file))

    @classmethod
    def decode(cls, datagram: bytes) -> Order:
        """The order in a datagram, without its environment."""
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
