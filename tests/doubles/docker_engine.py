"""A Docker engine of the tests' own: private socket and data, no network, no registry."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

IMAGE: Final = "drover/sandbox"
_PROGRAMS: Final = ("dockerd", "containerd", "docker", "docker-init", "runc")
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_READY_SECONDS: Final = 30.0
_SANDBOX: Final = Path(__file__).parents[2] / "deploy" / "images" / "sandbox"


def lacking() -> str:
    """Why no engine can be started here; empty if one can."""
    if os.geteuid() != 0:
        return "an engine of its own needs root"
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install --no-install-recommends docker.io"
    return ""


class Engine:
    """`dockerd` below `directory`, which must have a short name: a socket is in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._socket = directory / "d.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        """What DOCKER_HOST is to be."""
        return f"unix://{self._socket}"

    @property
    def runtimes(self) -> dict[str, object]:
        """Those beside its own."""
        program = shutil.which("runsc", path=_PATH)
        if program is None:
            return {}
        # Without a virtual machine, and without a network, which the sandboxes have none of.
        return {"runsc": {"path": program, "runtimeArgs": ["--platform=ptrace", "--network=none"]}}

    def start(self) -> None:
        """Starts the engine and waits until it answers."""
        for left in (self._socket, self.directory / "d.pid"):
            left.unlink(missing_ok=True)
        (self.directory / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)
        (self.directory / "daemon.json").write_text(json.dumps({"runtimes": self.runtimes}))
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("docker-init", "-s", "--", "dockerd", "--live-restore"),
                    *("--config-file", self.directory / "daemon.json"),
                    *("--data-root", self.directory / "data"),
                    *("--exec-root", self.directory / "exec"),
                    *("--pidfile", self.directory / "d.pid", "-H", self.host),
                    *("--exec-opt", "native.cgroupdriver=cgroupfs", "--shutdown-timeout", "2"),
                    *("--bridge=none", "--iptables=false", "--ip-forward=false"),
                ],
                env={"PATH": _PATH, "HOME": str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not self.answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()[-3000:]
            assert time.monotonic() < deadline, "the engine is not ready"
            time.sleep(0.05)

    def answers(self) -> bool:
        connection = http.client.HTTPConnection("docker", timeout=5)
        try:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(5)
            connection.sock.connect(str(self._socket))
            connection.request("GET", "/_ping")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @property
    def pid(self) -> int:
        """The engine's own number."""
        return int((self.directory / "d.pid").read_text())

    def kill(self) -> None:
        """Kills the engine as a crash would. What it ran goes on."""
        os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + _READY_SECONDS
        while self.answers():
            assert time.monotonic() < deadline, "the engine goes on"
        if self._process is not None:
            self._process.wait()

    def stop(self) -> None:
        """Ends the engine and all that it ran; nothing of it is to be kept."""
        while self._kill_all():
            time.sleep(0.02)
        if self._process is not None:
            self._process.wait()
        for place in ("exec/netns/default", "data"):
            subprocess.run(
                ["umount", "--lazy", self.directory / place], check=False, capture_output=True
            )

    def docker(self, *arguments: str) -> str:
        """Runs the engine's own client."""
        return subprocess.run(
            ["docker", *arguments],
            env=self.environment,
            check=True,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        ).stdout.strip()

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": _PATH, "HOME": str(self.directory), "DOCKER_HOST": self.host}

    def build_image(self) -> None:
        """Builds the sandboxes' image as the documentation says for a machine without registry."""
        subprocess.run(
            [sys.executable, _SANDBOX / "base.py", "drover/base"],
            env=self.environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.docker(
            *("build", "--quiet", "--network", "none", "--build-arg", "BASE_IMAGE=drover/base"),
            *("--tag", IMAGE, str(_SANDBOX)),
        )

    def _kill_all(self) -> int:
        """Kills the engine and what it started, which all name its directory; how many ran."""
        ours, running = os.fsencode(self.directory) + b"/", 0
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and ours in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
                    running += 1
        return running


@contextlib.contextmanager
def running_engine() -> Iterator[Engine]:
    """An engine that has the sandboxes' image.

    DROVER_TEST_ENGINE names the directory of one that goes on: made if it is not there, and left.
    """
    kept = os.environ.get("DROVER_TEST_ENGINE")
    directory = Path(kept or tempfile.mkdtemp(prefix="drover-docker-"))
    directory.mkdir(exist_ok=True)
    engine = Engine(directory)
    try:
        if not engine.answers():
            engine.start()
        if not engine.docker("images", "--quiet", IMAGE):
            engine.build_image()
        yield engine
    finally:
        if not kept:
            engine.stop()
            shutil.rmtree(directory, ignore_errors=True)
