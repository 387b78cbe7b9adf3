"""A node: runs a pod's container as a real tree of processes, under bubblewrap and control groups.

What its network does is what a network does that enforces policies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from services.hands.backends import etc_files
from services.hands.backends.cgroup import ControlGroups
from services.hands.domain.limits import Limits
from tests.doubles.kubernetes_rules import amount

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_PROCESSES = 4096
_JOIN = 'for group in $0; do echo $$ >"$group/cgroup.procs"; done; exec "$@"'


@cache
def _image() -> Path:
    """The root of the one image that there is, but for what it shares with the machine."""
    place = Path(tempfile.mkdtemp(prefix="drover-image-"))
    etc_files.lay_out(place / "etc")
    return place


class Container:
    """A pod's container, from its start to its end."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        claims: Mapping[str, Path],
        groups: ControlGroups,
        api_port: int,
    ) -> None:
        self._pod = pod
        self._api_port = api_port
        self._claims = claims
        spec = pod["spec"]["containers"][0]
        limits = spec["resources"]["limits"]
        self._group = groups.make(
            pod["metadata"]["name"],
            Limits(
                memory_bytes=int(amount(limits["memory"])),
                processes=_PROCESSES,
                cpus=float(amount(limits["cpu"])),
            ),
        )
        self.attached: asyncio.Queue[tuple[int, bytes] | None] | None = None
        self.pipes: list[asyncio.Task[None]] = []

    def mounted_wrong(self) -> str:
        """A file's place that is to be a directory's, because there was no file on the claim."""
        for mount in self._pod["spec"]["containers"][0].get("volumeMounts", ()):
            path, place = mount.get("subPath"), mount["mountPath"]
            source = self._claims["hands"] / path if path else None
            if place.startswith("/etc/") and source is not None and not source.is_file():
                return f'error mounting "{source}" to rootfs at "{place}": not a directory'
        return ""

    async def start(self, *, cut_off: bool) -> None:
        groups = " ".join(map(str, self._group.directories))
        self.process = await asyncio.create_subprocess_exec(
            *("sh", "-c", _JOIN, groups, "bwrap", *self._told(cut_off=cut_off)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin"},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.pipes = [
            asyncio.ensure_future(self._listen(channel, pipe))
            for channel, pipe in ((1, self.process.stdout), (2, self.process.stderr))
        ]

    async def _listen(self, channel: int, pipe: asyncio.StreamReader) -> None:
        """What is said while nobody is attached is lost, as far as who attaches is concerned."""
        while data := await pipe.read(32768):
            if self.attached is not None:
                await self.attached.put((channel, data))

    async def ended(self) -> tuple[int, bool]:
        """Waits for its end: its status, and whether it had used too much memory."""
        status = await self.process.wait()
        await asyncio.wait(self.pipes)
        if self.attached is not None:
            await self.attached.put(None)
        while self._group.members():  # noqa: ASYNC110  # the kernel does not say
            await asyncio.sleep(0.005)
        out_of_memory = self._group.out_of_memory()
        self._group.remove()
        return (status if status >= 0 else 128 - status), out_of_memory

    def kill(self) -> None:
        for pid in self._group.members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close_input(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()

    def processes(self) -> set[int]:
        return set(self._group.members())

    def _told(self, *, cut_off: bool) -> list[str]:
        spec = self._pod["spec"]
        container = spec["containers"][0]
        told = [
            *("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
            *("--hostname", spec.get("hostname", self._pod["metadata"]["name"])),
            *("--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"),
            *("--ro-bind", "/usr", "/usr"),
        ]
        if cut_off:
            told.append("--unshare-net")
        told += ["--setenv", "KUBERNETES_SERVICE_HOST", "127.0.0.1"]
        told += ["--setenv", "KUBERNETES_SERVICE_PORT", str(self._api_port)]
        for variable in container.get("env", ()):
            told += ["--setenv", variable["name"], variable["value"]]
        told += _system()
        for place in ("/run", "/mnt", "/mnt/session"):
            told += ["--perms", "0755", "--dir", place]
        volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
        for mount in container.get("volumeMounts", ()):
            told += self._mounted(mount, volumes[mount["name"]])
        told += ["--remount-ro", "/dev"]
        security = container["securityContext"]
        if security.get("readOnlyRootFilesystem"):
            told += ["--remount-ro", "/"]
        for name in ("SETUID", "SETGID", "SETPCAP"):
            told += ["--cap-add", f"CAP_{name}"]
        user, group = str(security["runAsUser"]), str(security["runAsGroup"])
        return [
            *(*told, "--chdir", container.get("workingDir", "/"), "--", "setpriv"),
            *("--reuid", user, "--regid", group, "--clear-groups"),
            *("--inh-caps=-all", "--bounding-set=-all", "--", *container["command"]),
        ]

    def _mounted(self, mount: dict[str, Any], volume: dict[str, Any]) -> list[str]:
        place = mount["mountPath"]
        if "emptyDir" in volume:
            size = str(int(amount(volume["emptyDir"]["sizeLimit"])))
            return ["--perms", "0777", "--size", size, "--tmpfs", place]
        root = self._claims[volume["persistentVolumeClaim"]["claimName"]]
        source = root / mount.get("subPath", "")
        if not source.exists():
            source.mkdir(parents=True)  # as a kubelet does
        return ["--ro-bind" if mount.get("readOnly") else "--bind", str(source), place]


def _system() -> list[str]:
    """What an image has: the machine's programs, and a configuration made up."""
    told = []
    if Path("/usr/local/etc").is_dir():
        told += ["--tmpfs", "/usr/local/etc", "--remount-ro", "/usr/local/etc"]
    for name in _SYSTEM:
        path = Path("/") / name
        if path.is_symlink():
            told += ["--symlink", str(path.readlink()), str(path)]
    told += ["--ro-bind", str(_image() / "etc"), "/etc"]
    for name in etc_files.MOUNTED:
        told += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return [*told, "--proc", "/proc", "--dev", "/dev"]
