"""A trial of what the embedded sandboxes protect against: one is started, and looked at.

Nothing is taken from what was asked for: an old bubblewrap, a kernel built otherwise or a container
around all this may give less.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from services.hands.domain.protections import Protection

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Mapping


_SECONDS: Final = 15.0
_EPERM: Final = 1
_NAMESPACES: Final = ("user", "pid", "mnt", "ipc", "uts", "net")
_CONTROLLERS: Final = {
    "memory": Protection.MEMORY,
    "pids": Protection.PROCESSES,
    "cpu": Protection.PROCESSORS,
}

# Tells what it sees, and stays until its input ends, so that it can be looked at from outside too.
PROGRAM: Final = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(result):
    return 0 if result >= 0 else ctypes.get_errno()
def writable(path):
    try:
        os.close(os.open(path + "/.trial", os.O_CREAT | os.O_WRONLY))
    except OSError:
        return False
    return True
def shown(path):
    try:
        with open(path, "rb") as file:
            return len(file.read(1))
    except OSError:
        return 0
with open("/proc/self/status") as file:
    status = dict(line.split(":", 1) for line in file)
with open("/proc/net/dev") as file:
    links = [line.split(":")[0].strip() for line in file if ":" in line]
print(json.dumps({
    "status": {name: value.strip() for name, value in status.items()},
    "namespaces": {name: os.readlink("/proc/self/ns/" + name)
                   for name in ("user", "pid", "mnt", "ipc", "uts", "net", "cgroup")
                   if os.path.lexists("/proc/self/ns/" + name)},
    "links": links,
    "writable": [path for path in ("/", "/usr", "/etc", "/dev", "/run/agent") if writable(path)],
    "nested": tried(libc.unshare(0x10000000)),
    "traced": tried(libc.ptrace(0, 0, 0, 0)),
    "shown": [path for path in ("/proc/cmdline", "/proc/keys") if shown(path)],
}), flush=True)
os.read(0, 1)
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found: `inside` by the trial's own words, the rest from outside.

    `groups` are the controllers that bound it, `user` is its user on the host.
    """

    inside: Mapping[str, Any]
    groups: frozenset[str]
    user: int


async def told(stream: socket.socket) -> Mapping[str, Any]:
    """What a trial that has just been started tells of itself.

    Raises `OSError` and `ValueError` for one that tells nothing.
    """
    loop = asyncio.get_running_loop()
    heard = b""
    async with asyncio.timeout(_SECONDS):
        while not heard.endswith(b"\n"):
            piece = await loop.sock_recv(stream, 65536)
            if not piece:
                break
            heard += piece
    try:
        found: Mapping[str, Any] = json.loads(heard)
    except ValueError as error:
        # Whatever starts it complains on the same stream.
        text = heard.decode("utf-8", "replace").strip() or "no reason was given"
        raise ValueError(text) from error
    return found


def grouped(pid: int, name: str, controllers: Collection[str]) -> frozenset[str]:
    """Which of the controllers a process's groups of this name have. Raises `OSError`."""
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    found: set[str] = set()
    for line in lines:
        number, here, path = line.split(":", 2)
        if path.endswith(f"/{name}"):
            # The second version's one hierarchy is number 0, and says no controllers.
            found.update(controllers if number == "0" else here.split(","))
    return frozenset(found).intersection(controllers)


def user_of(pid: int) -> int:
    """The user on the host that a process belongs to. Raises `OSError`."""
    return Path(f"/proc/{pid}").stat().st_uid


def held(facts: Facts) -> dict[Protection, str]:
    """What holds: of each protection nothing, or why it does not and how to get it."""
    inside, status = facts.inside, facts.inside["status"]
    rows = {
        Protection.NAMESPACES: _namespaces(inside),
        Protection.PRIVILEGES: ""
        if status.get("NoNewPrivs") == "1"
        and not any(int(status[name], 16) for name in status if name.startswith("Cap"))
        else "a trial sandbox had privileges: install bubblewrap 0.8 or newer",
        Protection.SYSTEM: ""
        if not inside["writable"]
        else f"a trial sandbox could write to {', '.join(inside['writable'])}: install "
        "bubblewrap 0.8 or newer",
        Protection.FILTER: ""
        if inside["traced"] == _EPERM and status.get("Seccomp") == "2"
        else f"there is no filter for {os.uname().machine}: use x86-64 or ARM64, and a kernel with "
        "seccomp",
        Protection.NESTING: ""
        if inside["nested"]
        else "a trial sandbox could make a user namespace: install bubblewrap 0.8 or newer",
        Protection.PROC: ""
        if not inside["shown"]
        else f"a trial sandbox could read {', '.join(inside['shown'])}: in a container, add "
        "systempaths=unconfined to its security options",
        Protection.GROUP_NAMESPACE: ""
        if _is_own("cgroup", inside)
        else "use a kernel with control group namespaces (Linux 4.6)",
        Protection.USERS: ""
        if facts.user not in {0, os.geteuid()}
        else "run Drover as root: only root can give each session a user",
        Protection.KERNEL: "use docker sandboxes with DROVER_SANDBOX_RUNTIME=runsc",
    }
    for controller, protection in _CONTROLLERS.items():
        rows[protection] = (
            ""
            if controller in facts.groups
            else f"no {controller} control group can be made here: run Drover as root, or the "
            "hands alone in a group that is theirs (a unit with Delegate=yes)"
        )
    return rows


def _namespaces(inside: Mapping[str, Any]) -> str:
    shared = [name for name in _NAMESPACES if not _is_own(name, inside)]
    if shared:
        return (
            f"a trial sandbox shared the host's {', '.join(shared)} namespace: use a kernel that "
            "has more of them"
        )
    if [*inside["links"]] != ["lo"]:
        return "a trial sandbox had a network device of the host's"
    return ""


def _is_own(name: str, inside: Mapping[str, Any]) -> bool:
    own = inside["namespaces"].get(name)
    return own is not None and own != str(Path(f"/proc/self/ns/{name}").readlink())
