"""The stack of docker-compose.yml, as an operator starts it, on the tests' own engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from anthropic import Anthropic

from tests.compose import base_image
from tests.compose.base_image import BASE, ROOT
from tests.doubles.docker_engine import Engine
from tests.doubles.ports import free_port

SERVICES: Final = (
    *("gateway", "session", "brain", "hands", "registry", "vault-proxy", "engine-proxy"),
    *("postgres", "collector"),
)
"""Those that go on, once each."""
_FILES: Final = ("docker-compose.yml", "tests/compose/stand_ins.yml")
_PROCESSES: Final = 7
"""Behind the gateway: two session services, two brains, and one of each else."""
_READY_SECONDS: Final = 90.0
_PROJECT: Final = "drover"
_VOLUME: Final = "drover-hands"


class Composition:
    """A stack that runs. `key` is the API key, `url` where the API is."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine = engine
        self.key = "a-key-of-the-tests"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._environment = directory / ".env"
        settings = {
            "BASE_IMAGE": BASE,
            "POSTGRES_PROGRAMS": next(Path("/usr/lib/postgresql").glob("*/bin")),
            "POSTGRES_HEALTH_INTERVAL": "1s",
            "HEALTH_INTERVAL": "20s",
            "DOCKER_SOCKET": engine.host.removeprefix("unix://"),
            "HANDS_VOLUME": _VOLUME,
            "DROVER_PORT": f"127.0.0.1:{port}",
            "TRACING_PORT": f"127.0.0.1:{free_port()}",
            "DROVER_API_KEY": self.key,
            "DROVER_HANDS_SPARE_SANDBOXES": "0",
            "DROVER_DRAIN_SECONDS": "0",
            "ANTHROPIC_BASE_URL": "http://model:8000",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        self._environment.write_text("".join(lines))

    def compose(self, *arguments: str) -> str:
        """Runs docker-compose; what it prints."""
        done = self._run(*arguments)
        assert done.returncode == 0, f"{done.stdout}\n{self.logs()}"
        return done.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        files = [word for file in _FILES for word in ("--file", file)]
        return subprocess.run(
            [
                *("docker-compose", "--env-file", self._environment),
                *("--project-name", _PROJECT, *files, *arguments),
            ],
            cwd=ROOT,
            env=self.engine.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def remove(self) -> None:
        """Ends it all, at once. A network that the engine still holds goes with the engine."""
        label = f"label=com.docker.compose.project={_PROJECT}"
        left = self.engine.docker("ps", "--all", "--quiet", "--filter", label).split()
        left += self.engine.docker(
            "ps", "--all", "--quiet", "--filter", f"volume={_VOLUME}"
        ).split()
        if left:
            self.engine.docker("rm", "--force", "--volumes", *{*left})
        self._run("down", "--volumes", "--remove-orphans")

    def client(self) -> Anthropic:
        """The official client, patient with what is away for a while."""
        return Anthropic(base_url=self.url, api_key=self.key, max_retries=30, timeout=60)

    def is_ready(self) -> bool:
        """Whether the gateway finds every service ready."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False

    def is_whole(self) -> bool:
        """Whether every replica serves, and none is missing."""
        request = urllib.request.Request(f"{self.url}/status", headers={"x-api-key": self.key})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
                processes = json.loads(answer.read())["processes"]
        except OSError:
            return False
        states = [one["state"] for one in processes]
        return states == ["SERVING"] * _PROCESSES

    def inspect(self, service: str, number: int = 1) -> Any:
        """What the engine says of a container."""
        return self.engine.inspect(f"{_PROJECT}_{service}_{number}")

    def kill(self, service: str) -> int:
        """Kills a container's process as the kernel would for want of memory; its number."""
        pid = int(self.inspect(service)["State"]["Pid"])
        assert pid, f"{service} does not run\n{self.logs()}"  # 0 would be the tests themselves
        os.kill(pid, signal.SIGKILL)
        return pid

    def is_back(self, service: str, before: int) -> bool:
        """Whether a container that was killed runs again, and all of the stack serves."""
        state = self.inspect(service)["State"]
        running = bool(state["Running"]) and state["Pid"] not in {0, before}
        return running and self.is_ready() and self.is_whole()

    def traces(self) -> dict[str, list[str]]:
        """The services that each trace spans, as far as the collector was told."""
        address = self.inspect("collector")["NetworkSettings"]["Networks"][f"{_PROJECT}_telemetry"]
        url = f"http://{address['IPAddress']}:4318/"
        with urllib.request.urlopen(url, timeout=5) as answer:  # the collector's
            found: dict[str, list[str]] = json.loads(answer.read())
            return found

    def logs(self) -> str:
        """The last lines of every container."""
        names = self.engine.docker("ps", "--all", "--format", "{{.Names}}").split()
        said = []
        for name in names:
            done = subprocess.run(
                ["docker", "logs", "--tail", "12", name],
                env=self.engine.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            said.append(f"== {name}\n{done.stdout[-3000:]}")
        return "\n".join(said)


def lacking() -> str:
    """Why no stack can be composed here; empty if one can."""
    if shutil.which("docker-compose") is None:
        return "no docker-compose: apt-get install --no-install-recommends docker-compose"
    return ""


@contextmanager
def composed(engine: Engine, directory: Path) -> Iterator[Composition]:
    """Builds the images, and starts the stack; it is gone at the end, with all that it kept."""
    stack = Composition(engine, directory)
    base_image.build(engine)
    stack.compose("build", "prepare")
    try:
        stack.compose("up", "--detach", "--no-build")
        wait_for(stack.is_ready, _READY_SECONDS, stack.logs)
        yield stack
    finally:
        stack.remove()


def wait_for(condition: Callable[[], bool], seconds: float, told: Callable[[], str]) -> float:
    """Waits until a condition holds; for how many seconds it was. Fails with what is told."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, f"not within {seconds:.0f} s\n{told()}"
        time.sleep(0.1)
    return time.monotonic() - begun
