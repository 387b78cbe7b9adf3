"""The real engine proxy, as a process, before the tests' engine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.doubles.docker_engine import Engine

_READY_SECONDS = 30.0


@dataclass
class Proxy:
    """Where it listens, and what it has logged."""

    path: Path
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def host(self) -> str:
        """What DOCKER_HOST is to be."""
        return f"unix://{self.path}"

    @property
    def said(self) -> str:
        return self.log.read_text()


@contextmanager
def running_proxy(engine: Engine, *, roots: Path | str = "", **settings: str) -> Iterator[Proxy]:
    """A proxy that lets containers have what is below `roots`; more DROVER_ENGINE_… by name."""
    with tempfile.TemporaryDirectory(prefix="drover-proxy-") as place:
        directory = Path(place)
        given = {
            "listen": f"unix:{directory}/s",
            "socket": engine.host.removeprefix("unix://"),
            "bind_roots": str(roots),
            "images": "drover/*,team/*,test/*",
            **settings,
        }
        variables = {f"DROVER_ENGINE_{name.upper()}": value for name, value in given.items()}
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "services.engine_proxy.main"],
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        proxy = Proxy(directory / "s", directory / "log", process)
        try:
            deadline = time.monotonic() + _READY_SECONDS
            while not _answers(proxy.path):
                assert process.poll() is None, proxy.said
                assert time.monotonic() < deadline, proxy.said
                time.sleep(0.02)
            yield proxy
        finally:
            process.terminate()
            process.wait(_READY_SECONDS)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as visitor:
        try:
            visitor.connect(str(path))
        except OSError:
            return False
    return True
