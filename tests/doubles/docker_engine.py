"""A Docker engine of the tests' own: private socket and data, no network, no registry."""

from __future__ import annotations

import contextlib
import fcntl
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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

IMAGE: Final = "drover/sandbox"
PLACE: Final = "DROVER_TEST_ENGINE"
_PROGRAMS: Final = ("dockerd", "containerd", "docker", "docker-init", "runc")
_PREFIX: Final = "drover-docker-"
_HELD: Final = "held"
_GROUPS: Final = Path("/sys/fs/cgroup")
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_READY_SECONDS: Final = 30.0
SANDBOX: Final = Path(__file__).parents[2] / "deploy" / "images" / "sandbox"


def lacking() -> str:
    """Why no engine can be started here; empty if one can."""
    if os.geteuid() != 0:
        return "an engine of its own needs root"
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install --no-install-recommends docker.io"
    return ""


class Engine:
    """`dockerd` below `directory`, which must have a short name: a socket is in it.

    It belongs to no process of the tests: who starts it may end before those who use it do.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._socket = directory / "d.sock"
        # All that it runs is below a control group of its own, by which it can be ended.
        self._group = f"/drover-tests-{directory.name}"

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
            subprocess.run(
                [
                    *("setsid", "--fork", "docker-init", "-s", "--", "dockerd", "--live-restore"),
                    *("--config-file", self.directory / "daemon.json"),
                    *("--data-root", self.directory / "data"),
                    *("--exec-root", self.directory / "exec"),
                    *("--pidfile", self.directory / "d.pid", "-H", self.host),
                    *("--exec-opt", "native.cgroupdriver=cgroupfs", "--shutdown-timeout", "2"),
                    *("--bridge=none", "--iptables=false", "--ip-forward=false"),
                    *("--cgroup-parent", self._group),
                ],
                env={"PATH": _PATH, "HOME": str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not self.answers():
            assert time.monotonic() < deadline, (self.directory / "log").read_text()[-3000:]
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            return self._ask("/_ping")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def inspect(self, container: str) -> Any:
        """What the engine says of a container, at less cost than its client's."""
        status, said = self._ask(f"/containers/{container}/json")
        assert status == 200, said
        return json.loads(said)

    def _ask(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("docker", timeout=5)
        try:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(5)
            connection.sock.connect(str(self._socket))
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
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

    def stop(self) -> None:
        """Ends the engine and all that it ran, and removes its directory."""
        bridges = self._bridges()
        while self._kill_all():
            time.sleep(0.02)
        for group in self._groups():
            with contextlib.suppress(OSError):  # what was in it is not cleared away yet
                group.rmdir()
        for place in reversed(_mounts_below(self.directory)):
            subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)
        for bridge in bridges:  # of networks that a test which was killed has left
            subprocess.run(["ip", "link", "delete", bridge], check=False, capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)

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

    def has_image(self) -> bool:
        """Whether the sandboxes' image is there."""
        return bool(self.docker("images", "--quiet", IMAGE))

    def build_image(self) -> None:
        """Builds the sandboxes' image as the documentation says for a machine without registry."""
        subprocess.run(
            [sys.executable, SANDBOX / "base.py", "drover/base"],
            env=self.environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.docker(
            *("build", "--quiet", "--network", "none", "--build-arg", "BASE_IMAGE=drover/base"),
            *("--tag", IMAGE, str(SANDBOX)),
        )

    def add_to_image(self, image: str, packed: bytes, name: str) -> str:
        """Makes an image of another and what is in a tar; its name."""
        container = self.docker("create", "--network", "none", image, "true")
        command = ["docker", "cp", "-", f"{container}:/"]
        subprocess.run(command, env=self.environment, input=packed, check=True)
        self.docker("commit", container, name)
        self.docker("rm", container)
        return name

    def take_image(self, other: Engine) -> None:
        """Takes the sandboxes' image over from another engine, which is quicker."""
        with subprocess.Popen(
            ["docker", "save", IMAGE], env=other.environment, stdout=subprocess.PIPE
        ) as saving:
            subprocess.run(
                ["docker", "load", "--quiet"],
                env=self.environment,
                stdin=saving.stdout,
                stdout=subprocess.DEVNULL,
                check=True,
            )
        assert saving.returncode == 0

    def _bridges(self) -> list[str]:
        """The interfaces of its networks: they are the machine's, and outlive it."""
        if not self.answers():
            return []
        listed = self.docker("network", "ls", "--quiet", "--filter", "driver=bridge")
        return [f"br-{network[:12]}" for network in listed.split()]

    def _kill_all(self) -> int:
        """Kills the engine, which names its directory, and what it ran; how many there were."""
        ours, running = os.fsencode(self.directory) + b"/", set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and ours in (entry / "cmdline").read_bytes():
                    running.add(int(entry.name))
        for group in self._groups():
            with contextlib.suppress(OSError):
                running.update(map(int, (group / "cgroup.procs").read_text().split()))
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(running)

    def _groups(self) -> Iterable[Path]:
        """The control groups of what it runs, the innermost first."""
        tops = (*_GROUPS.glob(f"*{self._group}"), *_GROUPS.glob(self._group[1:]))
        for top in tops:
            yield from sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
            yield top


def _mounts_below(directory: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [place for line in lines if (place := line.split()[1]).startswith(f"{directory}/")]


@contextlib.contextmanager
def reserved() -> Iterator[Engine]:
    """An engine that has not been started, in a place of its own; it is gone at the end.

    Its place is held by a lock while this process lives: whoever starts an engine later removes
    those whose holder was killed.
    """
    while True:
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(directory / _HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.exists():  # nobody took it for one that was left
            break
        os.close(lock)
    engine = Engine(directory)
    try:
        yield engine
    finally:
        engine.stop()
        os.close(lock)


def remove_left() -> None:
    """Ends the engines of runs that were killed."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(directory / _HELD, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Engine(directory).stop()
        os.close(lock)


@contextlib.contextmanager
def one_for_all() -> Iterator[None]:
    """Where the tests of this process and of those below it have their engine, until the end.

    DROVER_TEST_ENGINE names the directory of one that goes on: made if it is not there, and left.
    """
    if os.environ.get(PLACE) or lacking():
        yield
        return
    with reserved() as engine:
        os.environ[PLACE] = str(engine.directory)
        try:
            yield
        finally:
            del os.environ[PLACE]


def shared_engine() -> Engine:
    """The engine of the whole run, with the sandboxes' image: started by who needs it first."""
    engine = Engine(Path(os.environ[PLACE]))
    engine.directory.mkdir(exist_ok=True)
    with (engine.directory / "starting").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not engine.answers():
            remove_left()
            engine.start()
        if not engine.has_image():
            engine.build_image()
    return engine
