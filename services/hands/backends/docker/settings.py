"""What the operator says of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from services.hands.domain.protections import Protection

SOCKET: Final = "unix://"
DEFAULT_HOST: Final = f"{SOCKET}/var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """`host` is a URL as in DOCKER_HOST; `runtime` is one that the engine knows, its own if empty.

    The minimums are versions of the engine and of runc; empty takes any. `minimum` is the
    protections without which no sandbox is started. `volume` is the engine's volume that is mounted
    here as `data`: the hands are in a container, and the engine knows their files by another path.
    """

    host: str
    image: str
    runtime: str = ""
    engine_minimum: str = ""
    runc_minimum: str = ""
    threads: int = 8
    seconds: float = 20.0
    minimum: frozenset[Protection] = frozenset()
    volume: str = ""
    data: Path = Path("/")
