"""Processes that are refused what they need: memory, and file descriptors."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


def _memory_groups() -> Path | None:
    """Where control groups that bound memory can be made, if anywhere."""
    for parent, limit in ((_GROUPS / "memory", "memory.limit_in_bytes"), (_GROUPS, "memory.max")):
        probe = parent / f"drover-starved-{os.getpid()}"
        try:
            probe.mkdir()
        except OSError:
            continue
        usable = (probe / limit).exists()
        probe.rmdir()
        if usable:
            return parent
    return None


MEMORY_GROUPS = _memory_groups()


@contextmanager
def without_memory(pid: int) -> Iterator[Path]:
    """The kernel's killer for want of memory takes the process once it needs a page more.

    Yields the control group, which has to be empty at the end.
    """
    assert MEMORY_GROUPS is not None
    group = MEMORY_GROUPS / f"drover-starved-{pid}"
    group.mkdir()
    try:
        for name in ("memory.limit_in_bytes", "memory.max"):
            if (group / name).exists():
                (group / name).write_text("4096")
        (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        with suppress(OSError):
            group.rmdir()


def killed_for_memory(group: Path) -> bool:
    """Whether the kernel has killed somebody of the group for want of memory."""
    for name in ("memory.oom_control", "memory.events"):
        with suppress(OSError):
            lines = (group / name).read_text().splitlines()
            counts = dict(line.split() for line in lines if len(line.split()) == 2)
            return int(counts.get("oom_kill", 0)) > 0
    return False


@contextmanager
def without_descriptors(*pids: int, spare: int = 0) -> Iterator[Callable[[], None]]:
    """Processes that can open nothing more, or only so many; what is open stays open.

    Yields what does it again, for a process that has closed something meanwhile.
    """
    before = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids}

    def starve() -> None:
        for pid, (_, hard) in before.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (_free(pid, spare), hard))

    try:
        starve()
        yield starve
    finally:
        for pid, limits in before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def _free(pid: int, spare: int) -> int:
    """The limit below which so many numbers are free."""
    taken = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    free = (number for number in range(max(taken) + spare + 2) if number not in taken)
    for _ in range(spare):
        next(free)
    return next(free)
