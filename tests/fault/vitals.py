"""What processes take, and what they complained of."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.stack import Stack

SERVICES = ("registry", "session", "hands", "gateway", "brain-1", "brain-2")
MIB = 1024 * 1024
# What gRPC's core says of connections that a paused peer has let go stale, in words of its own.
_OF_GRPC = re.compile(r"[IW]\d{4} \d\d:\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class Vitals:
    """One process: who it is and what it takes."""

    pid: int
    threads: int
    memory: int
    """Bytes of its resident set."""
    files: int
    """Open files, connections among them."""


def vitals(stack: Stack) -> dict[str, Vitals]:
    """What the services take now."""
    return {name: _of(stack.pid(name)) for name in SERVICES}


def _of(pid: int) -> Vitals:
    process = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line
    )
    kib = int(status["VmRSS"].split()[0])
    files = len(list((process / "fd").iterdir()))
    return Vitals(pid, int(status["Threads"]), kib * 1024, files)


class Complaints:
    """The errors that services log from now on: what no outage excuses."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._read = {log: log.stat().st_size for log in logs.glob("*.log")}

    def found(self) -> list[str]:
        """Lines of level error, and whatever is not a line of a log."""
        lines: list[str] = []
        for log in sorted(self._logs.glob("*.log")):
            with log.open("rb") as file:
                file.seek(self._read.get(log, 0))
                new = file.read().decode(errors="replace").splitlines()
                lines += [f"{log.stem}: {line}" for line in new if _is_error(line)]
        return lines


def _is_error(line: str) -> bool:
    if _OF_GRPC.match(line):
        return False
    try:
        return json.loads(line)["level"] in {"error", "critical"}
    except (ValueError, KeyError, TypeError):
        return bool(line.strip())
