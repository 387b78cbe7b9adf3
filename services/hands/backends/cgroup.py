"""Control groups, version 1 or 2, where this process may make them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from services.hands.domain.limits import Limits

_PERIOD: Final = 100_000  # microseconds
_CONTROLLERS: Final = ("memory", "pids", "cpu")
_DEFAULT_ROOT: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class Group:
    """One sandbox's control groups: a directory per hierarchy."""

    directories: tuple[Path, ...]
    memory: Path | None

    def add(self, pids: Iterable[int]) -> None:
        """Moves processes in. Raises `OSError`."""
        for directory in self.directories:
            members = directory / "cgroup.procs"
            for pid in pids:
                _write(members, str(pid))

    def members(self) -> tuple[int, ...]:
        """Numbers of the processes in it."""
        pids: dict[int, None] = {}
        for directory in self.directories:
            try:
                text = (directory / "cgroup.procs").read_text(encoding="ascii")
            except OSError:
                continue
            pids.update(dict.fromkeys(map(int, text.split())))
        return tuple(pids)

    def out_of_memory(self) -> bool:
        """Whether the kernel has ended a process of the group for using too much memory."""
        if self.memory is None:
            return False
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = (self.memory / name).read_text(encoding="ascii").splitlines()
            except OSError:
                continue
            counts = dict(line.split(maxsplit=1) for line in lines if " " in line)
            return counts.get("oom_kill", "0") != "0"
        return False

    def remove(self) -> None:
        """Removes the groups, which must be empty; what is busy stays for the next start."""
        for directory in self.directories:
            try:
                directory.rmdir()
            except OSError:
                continue


class ControlGroups:
    """Makes groups below one parent per hierarchy. Found by `find`."""

    def __init__(self, parents: Mapping[str, Path], *, unified: bool) -> None:
        self._parents = parents
        self._unified = unified

    @property
    def bounds_memory(self) -> bool:
        """Whether the groups limit memory."""
        return "memory" in self._parents

    @property
    def controllers(self) -> frozenset[str]:
        """What the groups bound: of memory, pids and cpu."""
        return frozenset(self._parents)

    @classmethod
    def find(cls, name: str, root: Path = _DEFAULT_ROOT, own: Path = _OWN_GROUPS) -> ControlGroups:
        """The hierarchies that are writable; without any, groups that hold nothing.

        `name` is the parent's: one per installation, so that what a dead process left is found.
        Where the root is not writable, the group that this process is in may be, as `own` says: it
        has been given to Drover.
        """
        groups = _groups_of(own)
        if (root / "cgroup.controllers").exists():
            parent = _unified_parent(root, name) or _delegated(root / groups.get("", ""), name)
            return cls(_offered(parent) if parent is not None else {}, unified=True)
        parents = {}
        for controller in _CONTROLLERS:
            place = root / controller
            for group in dict.fromkeys((place, place / groups.get(controller, ""))):
                if _made(group / name):
                    parents[controller] = group / name
                    break
        return cls(parents, unified=False)

    def make(self, name: str, limits: Limits) -> Group:
        """A new group under its limits. Raises `OSError`."""
        directories: dict[Path, None] = {}
        memory = None
        try:
            for controller, parent in self._parents.items():
                directory = parent / name
                directory.mkdir(parents=True, exist_ok=True)
                directories[directory] = None
                if controller == "memory":
                    memory = directory
                for file, value in self._settings(controller, limits):
                    _write(directory / file, value)
        except OSError:
            Group(tuple(directories), None).remove()
            raise
        return Group(tuple(directories), memory)

    def close(self) -> None:
        """Removes the parents, if nothing is in them."""
        Group(tuple(dict.fromkeys(self._parents.values())), None).remove()

    def leftovers(self) -> tuple[Group, ...]:
        """Groups below the parents, whoever made them."""
        names = {
            entry.name: None
            for parent in self._parents.values()
            for entry in parent.iterdir()
            if entry.is_dir()
        }
        return tuple(
            Group(tuple(dict.fromkeys(parent / name for parent in self._parents.values())), None)
            for name in names
        )

    def _settings(self, controller: str, limits: Limits) -> tuple[tuple[str, str], ...]:
        quota = str(int(limits.cpus * _PERIOD))
        if controller == "pids":
            return (("pids.max", str(limits.processes)),)
        if self._unified:
            if controller == "memory":
                return (("memory.max", str(limits.memory_bytes)),)
            return (("cpu.max", f"{quota} {_PERIOD}"),)
        if controller == "memory":
            return (("memory.limit_in_bytes", str(limits.memory_bytes)),)
        return (("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", quota))


def _groups_of(file: Path) -> dict[str, str]:
    """The group of a process in each hierarchy, by controller; empty for the second version's."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path.lstrip("/")))
    return found


def _delegated(group: Path, name: str) -> Path | None:
    """A parent in the group that this process is in, where it is alone there.

    Groups that have others below have no processes themselves, so it moves to one of its own.
    """
    leaf = group / f"{name}-service"
    if not (os.access(group, os.W_OK) and _made(leaf)):
        return None
    with suppress(OSError):
        _write(leaf / "cgroup.procs", str(os.getpid()))
        parent = _unified_parent(group, name)
        if parent is not None and _offered(parent):
            return parent
        _write(group / "cgroup.procs", str(os.getpid()))
    for left in (group / name, leaf):
        with suppress(OSError):
            left.rmdir()
    return None


def _unified_parent(root: Path, name: str) -> Path | None:
    parent = root / name
    if not _made(parent):
        return None
    for directory in (root, parent):
        for controller in _CONTROLLERS:
            try:
                _write(directory / "cgroup.subtree_control", f"+{controller}")
            except OSError:
                continue  # on already, not offered, or not ours to give: what counts is `_offered`
    return parent


def _offered(parent: Path) -> dict[str, Path]:
    try:
        controllers = (parent / "cgroup.subtree_control").read_text(encoding="ascii").split()
    except OSError:
        return {}
    return {controller: parent for controller in _CONTROLLERS if controller in controllers}


def _made(directory: Path) -> bool:
    try:
        directory.mkdir(exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def _write(path: Path, value: str) -> None:
    # Not by `open`: a sandbox has a dozen of these, and a text file costs more than the write.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.write(fd, value.encode("ascii"))
    finally:
        os.close(fd)
