"""What a sandbox protects against, by name, and the least that an operator takes."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Protection(StrEnum):
    """One thing that holds of every sandbox, or does not."""

    NAMESPACES = "namespaces"
    """Users, processes, mounts, IPC, host name and network are the sandbox's own."""
    PRIVILEGES = "no-privileges"
    """No capability, and no way to one."""
    SYSTEM = "read-only-system"
    """Nothing but the session's directories and scratch can be written to."""
    FILTER = "system-call-filter"
    """The system calls that no tool needs are refused (CASES S5)."""
    NESTING = "no-nested-namespaces"
    """No namespace can be made inside."""
    PROC = "masked-proc"
    """What /proc says of the host's boot, keys and timers is hidden."""
    GROUP_NAMESPACE = "cgroup-namespace"
    """The host's control groups are not seen."""
    MEMORY = "memory-limit"
    """The memory of a sandbox as a whole is bounded."""
    PROCESSES = "process-limit"
    """So is the number of its processes and threads."""
    PROCESSORS = "processor-limit"
    """So is its share of the processors."""
    USERS = "user-per-session"
    """On the host, each session's processes and files belong to a user of its own."""
    KERNEL = "own-kernel"
    """System calls reach a kernel of the sandbox's own, not the host's."""


_ISOLATED: Final = frozenset(
    {
        Protection.NAMESPACES,
        Protection.PRIVILEGES,
        Protection.SYSTEM,
        Protection.FILTER,
        Protection.NESTING,
    }
)
_LIMITED: Final = _ISOLATED | {
    Protection.MEMORY,
    Protection.PROCESSES,
    Protection.PROCESSORS,
}
_SEPARATE: Final = _LIMITED | {Protection.USERS}
LEVELS: Final[Mapping[str, frozenset[Protection]]] = {
    "isolated": _ISOLATED,
    "limited": _LIMITED,
    "separate": _SEPARATE,
    "own-kernel": _SEPARATE | {Protection.KERNEL},
}
"""Names that stand for several, each with all of those before."""
DEFAULT: Final = "isolated"


def minimum(text: str) -> frozenset[Protection]:
    """The protections that levels and names, separated by commas, stand for.

    Raises `ValueError`, also where none is named: a sandbox without any is none.
    """
    wanted: set[Protection] = set()
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name in LEVELS:
            wanted |= LEVELS[name]
        elif name in set(Protection):
            wanted.add(Protection(name))
        else:
            known = ", ".join(dict.fromkeys((*LEVELS, *Protection)))
            raise ValueError(f"{name} is no level or protection; there are {known}")
    if not wanted:
        raise ValueError(f"name a level ({', '.join(LEVELS)}) or protections")
    return frozenset(wanted)


def shortfall(least: frozenset[Protection], held: Mapping[Protection, str]) -> str:
    """What of the least does not hold, and how to get it; empty if all of it does.

    `held` says of each protection why it does not hold and what to do, nothing if it does.
    """
    lacking = [
        f"{protection}: {held.get(protection, 'these sandboxes do not have it')}"
        for protection in Protection
        if protection in least and held.get(protection, "unknown")
    ]
    return "; ".join(lacking)
