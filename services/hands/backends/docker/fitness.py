"""Whether an engine is fit to hold sandboxes: what it must be able to enforce (CASES S14)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import structlog

from services.hands.backends.docker.container import Machine
from services.hands.backends.docker.settings import SOCKET
from services.hands.backends.port import BackendUnavailable, ImageGone
from services.hands.domain.protections import Protection, shortfall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from services.hands.backends.docker.settings import EngineSettings

_log = structlog.get_logger("hands.docker")

_OWN_KERNEL: Final = ("runsc", "kata")
_HOST_SOCKETS: Final = (
    *("--host-uds=open", "--host-uds=all"),
    *("--fsgofer-host-uds", "--fsgofer-host-uds=true"),
)
"""What runsc is to be told for that; the last in versions of before 2023."""
_LIMITS: Final = {
    "MemoryLimit": "memory",
    "PidsLimit": "the number of processes",
    "CpuCfsPeriod": "processor time",
    "CpuCfsQuota": "processor time",
}


def check_host(host: str) -> None:
    """Raises `BackendUnavailable` for an engine that is not on this machine."""
    if not host.startswith(SOCKET):
        raise BackendUnavailable(
            f"DOCKER_HOST is {host.partition('://')[0]}://…, and sandboxes mount this machine's "
            "directories: name the socket of an engine here, unix:///path"
        )


def check(info: Mapping[str, Any], version: Mapping[str, Any], settings: EngineSettings) -> Machine:
    """What the engine's machine has. Raises `BackendUnavailable` for one that is not fit."""
    if info.get("OSType") != "linux":
        raise _unfit(f"its containers are {info.get('OSType')}'s", "use one of Linux")
    for key, what in _LIMITS.items():
        if not info.get(key):
            raise _unfit(f"it cannot limit {what}", "give it control groups")
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    if any("name=rootless" in option for option in options):
        raise _unfit(
            "it is rootless, so that no session could have a user of its own",
            "use an engine that runs as root",
        )
    seccomp = [option for option in options if "name=seccomp" in option]
    if not seccomp or any("unconfined" in option for option in seccomp):
        raise _unfit("it filters no system calls", "have it use its default seccomp profile")
    runtimes = info.get("Runtimes") or {}
    if settings.runtime and settings.runtime not in runtimes:
        raise _unfit(
            f"it has no runtime {settings.runtime}, only {', '.join(sorted(runtimes))}",
            "add it to the engine's daemon.json, or set DROVER_SANDBOX_RUNTIME to one that it has",
        )
    parts = {part.get("Name"): str(part.get("Version")) for part in version.get("Components") or ()}
    _at_least("it", str(version.get("Version")), settings.engine_minimum)
    _at_least("its runc", parts.get("runc", ""), settings.runc_minimum)
    if lacking := shortfall(settings.minimum, held(runtimes, settings)):
        raise BackendUnavailable(
            f"docker sandboxes have less than DROVER_SANDBOX_MINIMUM here. {lacking}"
        )
    sockets = _passes_sockets(runtimes.get(settings.runtime) or {}, settings.runtime)
    if not sockets:
        _log.warning(
            "no_way_out",
            runtime=settings.runtime,
            effect="its sandboxes have no network: it lets them connect to no socket of the host. "
            f"runsc does with {_HOST_SOCKETS[0]} among its runtimeArgs",
        )
    return Machine(
        int(info.get("NCPU") or 1),
        bool(info.get("SwapLimit")),
        sockets,
        _no_layers(runtimes, settings.runtime, options),
        _own_kernel(runtimes.get(settings.runtime) or {}, settings.runtime),
    )


def _no_layers(runtimes: Mapping[str, Any], runtime: str, options: Sequence[str]) -> str:
    """Why no images can be made of its containers; empty where they can."""
    if _own_kernel(runtimes.get(runtime) or {}, runtime):
        return (
            f"what is written in sandboxes of the runtime {runtime} is not the engine's to keep: "
            "build an image that has the packages, and name it in the environment's metadata as "
            "drover.sandbox_image"
        )
    if any("name=userns" in option for option in options):
        return (
            "the engine maps users (userns-remap), and root's files of a sandbox have no place in "
            "its images: build one that has the packages, and name it in the environment's "
            "metadata as drover.sandbox_image"
        )
    return ""


def held(runtimes: Mapping[str, Any], settings: EngineSettings) -> dict[Protection, str]:
    """Of each protection why it does not hold, nothing where it does.

    What `check` and `container.weaker` let pass has most of them.
    """
    rows = dict.fromkeys(Protection, "")
    if os.geteuid() != 0:
        rows[Protection.USERS] = "run Drover as root: only root can give each session a user"
    runtime = runtimes.get(settings.runtime) or {}
    if not settings.runtime or not _own_kernel(runtime, settings.runtime):
        rows[Protection.KERNEL] = (
            "set DROVER_SANDBOX_RUNTIME to one of the engine's runtimes with a kernel of its own, "
            "such as runsc"
        )
    return rows


def check_image(name: str, image: Mapping[str, Any] | None) -> None:
    """Raises `ImageGone` for an image that is missing, `BackendUnavailable` for one not fit."""
    if image is None:
        raise ImageGone(
            f"the container engine has no image {name}, and none is fetched: build it with "
            f"`docker build -t {name} deploy/images/sandbox`, or name one that it has in "
            "DROVER_SANDBOX_IMAGE, or in the environment's metadata as drover.sandbox_image"
        )
    volumes = (image.get("Config") or {}).get("Volumes") or {}
    if volumes:
        raise BackendUnavailable(
            f"the image {name} declares volumes ({', '.join(sorted(volumes))}): a sandbox could "
            "fill the engine's disk through them. Use one without"
        )


def _passes_sockets(runtime: Mapping[str, Any], name: str) -> bool:
    """Whether a program in such a sandbox reaches a unix socket that is mounted into it.

    A kernel of its own has sockets of its own, unless it is told otherwise.
    """
    if not _own_kernel(runtime, name):
        return True
    told = [str(argument) for argument in runtime.get("runtimeArgs") or ()]
    return any(f"--{argument.lstrip('-')}" in _HOST_SOCKETS for argument in told)


def _own_kernel(runtime: Mapping[str, Any], name: str) -> bool:
    program = f"{name} {runtime.get('path', '')}".lower()
    return any(kernel in program for kernel in _OWN_KERNEL)


def _at_least(what: str, version: str, minimum: str) -> None:
    if minimum and _numbers(version) < _numbers(minimum):
        raise _unfit(
            f"{what} is of version {version or 'unknown'}, and {minimum} is the least allowed",
            "upgrade it",
        )


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()


def _unfit(what: str, remedy: str) -> BackendUnavailable:
    return BackendUnavailable(f"the container engine is not fit for sandboxes: {what}; {remedy}")
