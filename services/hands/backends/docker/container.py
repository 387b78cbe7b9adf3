"""What the engine is told of a sandbox, and whether it did as it was told (CASES S14).

The words are those of the Engine API's "Create a container".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from services.hands.backends import inside
from services.hands.backends.etc_files import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from services.hands.backends.port import SandboxSpec
    from services.hands.backends.user_files import UserFiles

INSTALLATION: Final = "drover.installation"
HAND: Final = "drover.hand"
_ENGINE_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
# The engine's own list, and what else /proc says of the host that no program needs.
_MASKED: Final = (
    *("/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi"),
    *("/sys/firmware", "/sys/devices/virtual/powercap"),
    *("/proc/cmdline", "/proc/interrupts", "/proc/key-users"),
)
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
# What unpacking and configuring the system's packages needs: owners and modes of files, and the
# users that their scripts step down to. No devices, mounts, modules, raw sockets, no kills.
_INSTALLER: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
_BILLION: Final = 1_000_000_000
# A kernel in user space has threads of its own, which count: with too few it dies at its start.
_RUNTIME_THREADS: Final = 256


@dataclass(frozen=True, slots=True)
class Places:
    """How the engine's machine calls what is below `here`: by the same path if `there` is none."""

    here: Path = Path("/")
    there: Path | None = None

    def of(self, path: Path) -> Path:
        """The engine's path of one of this process's. Raises `ValueError` for one not below it."""
        return path if self.there is None else self.there / path.relative_to(self.here)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the engine's machine has.

    `swap_limits`: the kernel bounds swap. `sockets`: a sandbox can connect to a unix socket of the
    host that is mounted into it. `no_layers`: why no images are made of its containers.
    `own_kernel`: each container has one, which counts its processes. `places`: where the hands'
    files are there. `disk`: a directory here on the disk of what is written in containers.
    """

    processors: int
    swap_limits: bool
    sockets: bool = True
    no_layers: str = ""
    own_kernel: bool = False
    places: Places = Places()
    disk: Path | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """What every sandbox is given of the host: the agent, and a user database of its own."""

    agent: Path
    users: UserFiles


def configuration(
    spec: SandboxSpec,
    *,
    user: int,
    image: str,
    runtime: str,
    installation: str,
    files: Files,
    machine: Machine,
) -> dict[str, Any]:
    """The body of the request. Nothing in it is a secret: the sandbox and `inspect` show it."""
    limits = spec.limits
    host: dict[str, Any] = {
        "NetworkMode": "none",
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true"],
        "ReadonlyRootfs": True,
        # The user is the volume's, as the host counts: an engine that maps users does not here.
        "UsernsMode": "host",
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "MaskedPaths": [*_MASKED],
        "ReadonlyPaths": [*_READ_ONLY],
        "PidsLimit": limits.processes,
        "Memory": limits.memory_bytes,
        "NanoCpus": int(min(limits.cpus, machine.processors) * _BILLION),
        "ShmSize": inside.SHARED_MEMORY,
        "Tmpfs": {
            "/tmp": _tmpfs(limits.tmp_bytes, "1777"),  # noqa: S108  # the sandbox's own
            "/run": _tmpfs(inside.RUN_BYTES, "0755"),
            inside.CONTROL_DIRECTORY: _tmpfs(
                inside.CONTROL_BYTES, "0700", f"uid={user},gid={user}"
            ),
        },
        "Mounts": [
            _mount(machine.places.of(source), place, writable)
            for source, place, writable in _mounts(spec, files)
        ],
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        # The agent's stream is not for a file on the engine's disk.
        "LogConfig": {"Type": "none", "Config": {}},
        "RestartPolicy": {"Name": "no"},
        "Init": False,  # the agent's first process is one
    }
    if spec.installs_system:
        host |= {"ReadonlyRootfs": False, "CapAdd": [*_INSTALLER]}
        # In the place of a session's directories.
        host["Tmpfs"] |= dict.fromkeys(inside.SESSION, _tmpfs(inside.RUN_BYTES, "0755"))
    if machine.swap_limits:
        host["MemorySwap"] = limits.memory_bytes
    if runtime:
        host["Runtime"] = runtime
        host["PidsLimit"] += _RUNTIME_THREADS
    return {
        "Image": image,
        "Hostname": HOSTNAME,
        "User": f"{user}:{user}",
        "Entrypoint": ["python3", *inside.AGENT],
        "Env": [f"PATH={_ENGINE_PATH}", "LANG=C.UTF-8"],
        "WorkingDir": "/",
        "Labels": {INSTALLATION: installation, HAND: spec.hand_id},
        "Healthcheck": {"Test": ["NONE"]},
        "NetworkDisabled": True,
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,  # the agent sees the end of a hands process that dies
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": host,
    }


_COMPARED: Final = (
    *("NetworkMode", "Privileged", "CapDrop", "ReadonlyRootfs", "PidsLimit", "Memory", "NanoCpus"),
    *("UsernsMode", "IpcMode", "CgroupnsMode", "MemorySwap", "Runtime"),
)
_EMPTY: Final = (*("Devices", "DeviceRequests", "GroupAdd", "VolumesFrom", "PidMode", "UTSMode"),)


def weaker(wanted: Mapping[str, Any], inspected: Mapping[str, Any]) -> Sequence[str]:
    """Where the engine's container has less protection than it was told; empty if nowhere."""
    asked, has = wanted["HostConfig"], inspected.get("HostConfig") or {}
    found = [
        f"{key} is {json.dumps(has.get(key))}"
        for key in _COMPARED
        if key in asked and has.get(key) != asked[key]
    ]
    found += [f"{key} is {json.dumps(has[key])}" for key in _EMPTY if has.get(key)]
    if more := {*map(_capability, has.get("CapAdd") or ())}.difference(asked.get("CapAdd", ())):
        found.append(f"CapAdd is {json.dumps(sorted(more))}")
    for key, what in (("MaskedPaths", "masked"), ("ReadonlyPaths", "read-only")):
        hidden = set(has.get(key) or [])
        found += [f"{path} is not {what}" for path in asked[key] if path not in hidden]
    options = has.get("SecurityOpt") or []
    unprivileged = {"no-new-privileges", "no-new-privileges:true"}.intersection(options)
    if not unprivileged or any("unconfined" in option for option in options):
        found.append(f"SecurityOpt is {json.dumps(options)}")
    if (inspected.get("Config") or {}).get("User") != wanted["User"]:
        found.append("User is another")
    expected = {mount["Target"]: not mount["ReadOnly"] for mount in asked["Mounts"]}
    mounts = {mount.get("Destination"): mount.get("RW") for mount in inspected.get("Mounts") or []}
    if mounts != expected:
        found.append(f"Mounts are {', '.join(sorted(map(str, mounts)))}")
    return found


def _mounts(spec: SandboxSpec, files: Files) -> Iterator[tuple[Path, str, bool]]:
    """Directory or file of the hands, its place in the sandbox, and whether it may be written."""
    yield from spec.mounts
    yield files.agent, inside.AGENT_DIRECTORY, False
    if not spec.installs_system:  # packages add some, and replace the certificates
        yield files.users.passwd, "/etc/passwd", False
        yield files.users.group, "/etc/group", False
    if spec.way_out is not None:
        yield spec.way_out.directory, inside.EGRESS_DIRECTORY, False
        if not spec.installs_system:
            yield spec.way_out.bundle, inside.SYSTEM_CERTIFICATES, False


def _capability(name: str) -> str:
    return name.removeprefix("CAP_")


def _tmpfs(size: int, mode: str, more: str = "") -> str:
    options = ["rw", "exec", "nosuid", "nodev", f"size={size}", f"mode={mode}"]
    return ",".join([*options, more] if more else options)


def _mount(source: Path, place: str, writable: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": place, "ReadOnly": not writable}
