"""What a container may be: a sandbox, and nothing that has more of its host than one.

Every key that may be in a request's body is here, with what it may say. The engine has more of them
with each release; what is not here is refused. The words are those of "Create a container".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from services.engine_proxy.domain.places import is_plain
from services.engine_proxy.domain.refusal import denied

if TYPE_CHECKING:
    from services.engine_proxy.domain.places import Places

Check = Callable[[Any], bool]

OWN: Final = "drover.proxy"
"""The label of the containers of one proxy: its places' identity."""
LAYER: Final = "drover.proxy.layer"
"""The label of the images that were made of them."""

MASKED: Final = frozenset(
    {
        *("/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
        *("/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi"),
        "/sys/firmware",
    }
)
"""The engine's own list (moby, oci/defaults.go) of what a container must not see."""
READ_ONLY: Final = frozenset(
    {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)
"""And of what it must not write to."""
# What unpacking and configuring packages of the system needs, in a container that is given
# nothing that it could write to.
_INSTALLER: Final = frozenset({"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"})
_KERNELS: Final = ("/proc", "/sys", "/dev")
_TMPFS: Final = re.compile(
    "rw,(exec|noexec),nosuid,nodev,size=[1-9][0-9]{0,15},mode=[0-7]{4}(,uid=[0-9]+,gid=[0-9]+)?"
)
_USER: Final = re.compile(r"(0|[1-9][0-9]{0,9}):\1")  # no other spelling of root
_LABEL: Final = re.compile(r"drover\.[a-z.]{1,60}")
_MOST: Final = 128
_MOST_TEXT: Final = 4096


def _is(*wanted: object) -> Check:
    """Equal to one of these, and of its type: to Python, 0 is False."""
    return lambda value: any(type(value) is type(one) and value == one for one in wanted)


def _amount(value: object) -> bool:
    return type(value) is int and value > 0


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_TEXT and "\0" not in value


def _texts(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST and all(map(_text, value))


def _among(allowed: frozenset[str]) -> Check:
    return lambda value: _texts(value) and allowed.issuperset(value)


def _all_of(needed: frozenset[str]) -> Check:
    return lambda value: _texts(value) and needed.issubset(value)


def _inside(value: object) -> bool:
    """A place in a container that is not its kernel's."""
    return (
        isinstance(value, str)
        and is_plain(value)
        and value != "/"
        and not any(value == place or value.startswith(f"{place}/") for place in _KERNELS)
    )


def _tmpfs(value: object) -> bool:
    return isinstance(value, dict) and all(
        _inside(place) and isinstance(options, str) and _TMPFS.fullmatch(options)
        for place, options in value.items()
    )


def _mounts(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST and all(map(_mount, value))


def _mount(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"Type", "Source", "Target", "ReadOnly"}
        and value["Type"] == "bind"
        and _text(value["Source"])
        and _inside(value["Target"])
        and isinstance(value["ReadOnly"], bool)
    )


def _labels(value: object) -> bool:
    """Ours alone: other programs act on what they find in labels."""
    return isinstance(value, dict) and all(
        _LABEL.fullmatch(key) and _text(text) for key, text in value.items()
    )


def _user(value: object) -> bool:
    return isinstance(value, str) and _USER.fullmatch(value) is not None


_CONFIG: Final[Mapping[str, Check]] = {
    "Image": _text,
    "Hostname": _text,
    "User": _user,
    "Entrypoint": _texts,
    "Env": _texts,
    # Older runtimes begin at a directory of the host by way of /proc/self/fd (CVE-2024-21626).
    "WorkingDir": lambda value: value == "/" or _inside(value),
    "Labels": _labels,
    "Healthcheck": _is({"Test": ["NONE"]}),
    "NetworkDisabled": _is(True),
    "Tty": _is(False),
    "OpenStdin": _is(True),
    "StdinOnce": _is(True),
    "AttachStdin": _is(True),
    "AttachStdout": _is(True),
    "AttachStderr": _is(True),
    "HostConfig": lambda value: isinstance(value, dict),
}
_CONFIG_NEEDED: Final = ("Image", "User", "Healthcheck", "NetworkDisabled", "StdinOnce")

_HOST: Final[Mapping[str, Check]] = {
    "NetworkMode": _is("none"),
    "Privileged": _is(False),
    "CapDrop": _is(["ALL"]),
    "CapAdd": _among(_INSTALLER),
    "SecurityOpt": _is(["no-new-privileges:true"]),
    "ReadonlyRootfs": _is(True, False),
    "UsernsMode": _is("", "host"),
    "IpcMode": _is("private"),
    "CgroupnsMode": _is("private"),
    "MaskedPaths": _all_of(MASKED),
    "ReadonlyPaths": _all_of(READ_ONLY),
    "PidsLimit": _amount,
    "Memory": _amount,
    "MemorySwap": _amount,
    "NanoCpus": _amount,
    "ShmSize": _amount,
    "Tmpfs": _tmpfs,
    "Mounts": _mounts,
    "Ulimits": _is([{"Name": "core", "Soft": 0, "Hard": 0}]),
    "LogConfig": _is({"Type": "none", "Config": {}}),
    "RestartPolicy": _is({"Name": "no"}),
    "Init": _is(False),
    "Runtime": _text,
}
_HOST_OPTIONAL: Final = frozenset({"CapAdd", "UsernsMode", "MemorySwap", "Init", "Runtime"})


@dataclass(frozen=True, slots=True)
class Rules:
    """What depends on the installation. `runtime` runs every sandbox: the engine's own if empty."""

    places: Places
    runtime: str = ""


def judged(body: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """The body that is passed on, labelled as this proxy's. Raises `DroverError`."""
    _check(body, _CONFIG, _CONFIG_NEEDED, "")
    host: Mapping[str, Any] = body.get("HostConfig", {})
    _check(host, _HOST, _HOST.keys() - _HOST_OPTIONAL, "HostConfig.")
    if (runtime := host.get("Runtime", "")) != rules.runtime:
        raise denied(
            f"the runtime {runtime[:80]!r} is not the installation's, {rules.runtime!r}: set "
            "DROVER_SANDBOX_RUNTIME for the engine proxy as for the hands"
        )
    if host.get("MemorySwap", host["Memory"]) != host["Memory"]:
        raise denied("HostConfig.MemorySwap may not be more than HostConfig.Memory")
    installs = host.get("CapAdd") or not host["ReadonlyRootfs"] or body["User"] == "0:0"
    if installs and not all(mount["ReadOnly"] for mount in host["Mounts"]):
        raise denied("a container that installs something is given nothing that it may write to")
    mounts = [
        rules.places.mount(mount["Source"], mount["Target"], read_only=mount["ReadOnly"])
        for mount in host["Mounts"]
    ]
    labels = {**body.get("Labels", {}), OWN: rules.places.identity}
    return {**body, "Labels": labels, "HostConfig": {**host, "Mounts": mounts}}


def committed(body: Mapping[str, Any], places: Places) -> dict[str, Any]:
    """What an image that is made of a container is told. Raises `DroverError`."""
    _check(body, {"Labels": _labels}, (), "")
    # Containers have their image's labels: one that is run from this image is not ours by that.
    return {"Labels": {**body.get("Labels", {}), OWN: "", LAYER: places.identity}}


def _check(
    given: Mapping[str, Any], allowed: Mapping[str, Check], needed: Iterable[str], path: str
) -> None:
    for key, value in given.items():
        if key not in allowed or not allowed[key](value):
            shown = json.dumps(value)[:200]
            raise denied(f"no sandbox is a container whose {path}{key[:80]} is {shown}")
    for key in needed:
        if key not in given:
            raise denied(f"no sandbox is a container that does not say its {path}{key}")
