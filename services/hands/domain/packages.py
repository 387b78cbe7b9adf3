"""Packages of an environment: how they are installed, and what a sandbox finds of them.

All of them are below one directory, which is the same where they are installed and where they are
used: programs and libraries have its path written into them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from catalogue.package_hosts import MANAGERS
from catalogue.packages import NEEDS_ROOT, WITH_ROOT, WITHOUT, check_package, of_image
from drover.event.v1 import session_event_pb2 as pb
from services.hands.domain.toolset import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from drover.environment.v1.environment_pb2 import CloudConfig

DIRECTORY: Final = "/run/drover/packages"
CURRENT: Final = f"{DIRECTORY}/current"
"""What is installed, in a sandbox that uses it and in the one that installs."""

SYSTEM: Final = "apt"
"""The manager whose packages belong to the system: they are in the image, not in a directory."""

_MOST_WORDS: Final = 600


@dataclass(frozen=True, slots=True)
class Packages:
    """The lists by manager, none empty. `owner` says whose: equal lists of others are others."""

    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()
    owner: str = ""

    def __bool__(self) -> bool:
        return bool(self.lists)

    @classmethod
    def of(cls, cloud: CloudConfig, workspace_id: str) -> Packages:
        """Those of an environment."""
        asked = cloud.packages
        lists = tuple(
            (manager, tuple(listed)) for manager in MANAGERS if (listed := getattr(asked, manager))
        )
        if not lists:
            return NONE
        # Whoever may reach more may have been given other things by the same names.
        networking = cloud.networking.SerializeToString(deterministic=True)
        return cls(lists, f"{workspace_id} {hashlib.sha256(networking).hexdigest()}")

    @property
    def system(self) -> Packages:
        """Those that become a layer of the image."""
        return self._those(lambda manager: manager == SYSTEM)

    @property
    def beside(self) -> Packages:
        """Those that lie beside the system."""
        return self._those(lambda manager: manager != SYSTEM)

    def _those(self, wanted: Callable[[str], bool]) -> Packages:
        lists = tuple(entry for entry in self.lists if wanted(entry[0]))
        return Packages(lists, self.owner) if lists else NONE

    def key(self, *system: str) -> str:
        """The name of what comes of them on a system that these words say all of."""
        text = json.dumps([self.lists, self.owner, system], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


NONE: Final = Packages()


@dataclass(frozen=True, slots=True)
class Layering:
    """What a sandbox's image was when it was started, as to the system's packages.

    `key` is theirs, `base` the image without them. `pending`: nobody waited any longer for them.
    `waited` is in seconds.
    """

    key: str = ""
    base: str = ""
    pending: bool = False
    waited: float = 0.0


UNLAYERED: Final = Layering()


@dataclass(frozen=True, slots=True)
class Failure:
    """What could not be installed, and the end of what was said of it."""

    manager: str
    package: str
    words: str

    def error(self) -> pb.SessionError:
        """What people are told. The session goes on without the package."""
        return _error(
            f"{self.manager} has not installed {self.package}, which this environment lists; the "
            f"session goes on without it, and it is tried again when the session is next run: "
            f"{end_of(self.words)}"
        )


def end_of(words: str) -> str:
    """As much as people are told."""
    words = words.strip()
    return words if len(words) <= _MOST_WORDS else f"…{words[-_MOST_WORDS:]}"


def still(packages: Packages) -> pb.SessionError:
    """What people are told when nobody waits any longer."""
    names = ", ".join(manager for manager, _ in packages.lists)
    return _error(
        f"this environment's packages ({names}) are still being installed: commands run without "
        "them until they are there"
    )


def refused(packages: Packages, kind: str) -> tuple[tuple[Failure, ...], Packages]:
    """What of it is installed in no sandbox of this kind, and what is left."""
    failures: list[Failure] = []
    left: list[tuple[str, tuple[str, ...]]] = []
    for manager, listed in packages.lists:
        if kind in WITHOUT:
            failures.append(Failure(manager, ", ".join(listed), of_image(kind)))
            continue
        if manager == SYSTEM and kind != WITH_ROOT:
            failures.append(Failure(manager, ", ".join(listed), NEEDS_ROOT))
            continue
        fit: list[str] = []
        for package in listed:
            try:
                check_package(manager, package)
            except ValueError as error:
                failures.append(Failure(manager, package, str(error)))
            else:
                fit.append(package)
        if fit:
            left.append((manager, tuple(fit)))
    return tuple(failures), Packages(tuple(left), packages.owner)


_VARIABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "gem": {"GEM_PATH": f"{CURRENT}/gem:"},  # and the system's own
    "npm": {"NODE_PATH": f"{CURRENT}/npm/lib/node_modules"},
    "pip": {"PYTHONPATH": f"{CURRENT}/pip"},
}
VARIABLES: Final = frozenset(name for given in _VARIABLES.values() for name in given)
"""Names of all of them, but for PATH."""


def environment(packages: Packages, path: str) -> Mapping[str, str]:
    """The variables by which commands find them; `path` is what PATH is without."""
    found: dict[str, str] = {}
    managers = [manager for manager, _ in packages.beside.lists]
    for manager in managers:
        found |= _VARIABLES.get(manager, {})
    if managers:
        found["PATH"] = ":".join([*(f"{CURRENT}/{manager}/bin" for manager in managers), path])
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """A program to run: its arguments, none of which any shell reads, and its variables."""

    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)

    def call(self, environment: Mapping[str, str], seconds: float) -> ToolCall:
        """The agent's call that runs it. No tool of a model's has that name."""
        given = {"arguments": [*self.arguments], "environment": {**environment, **self.variables}}
        return ToolCall("program", given, seconds)


def steps(manager: str, packages: Sequence[str], index: str = "") -> Sequence[Step]:
    """The programs that install packages which were found fit. `index` is the operator's own."""
    place = f"{CURRENT}/{manager}"
    if manager == "pip":
        return [
            Step(
                (
                    *("python3", "-m", "pip", "install", "--no-input", "--quiet"),
                    *("--disable-pip-version-check", "--no-warn-script-location"),
                    *("--no-cache-dir", "--progress-bar", "off", "--target", place),
                    *(("--index-url", index) if index else ()),
                    *("--", *packages),
                )
            )
        ]
    if manager == "npm":
        return [
            Step(
                (
                    *("npm", "install", "--global", "--prefix", place, "--no-audit", "--no-fund"),
                    *("--no-update-notifier", "--loglevel", "error"),
                    *(("--registry", index) if index else ()),
                    *("--", *packages),
                )
            )
        ]
    if manager == "cargo":
        return [
            Step(
                (
                    *("cargo", "install", "--quiet", "--root", place),
                    *(("--index", f"sparse+{index.rstrip('/')}/") if index else ()),
                    *("--", *packages),
                )
            )
        ]
    if manager == "gem":
        # What follows `--` would be for the compiler of the gem's extensions.
        return [
            Step(
                (
                    *("gem", "install", "--no-document", "--install-dir", place),
                    *("--bindir", f"{place}/bin"),
                    *(("--clear-sources", "--source", index) if index else ()),
                    *packages,
                )
            )
        ]
    variables = {"GOBIN": f"{place}/bin", "GOFLAGS": "-modcacherw"}
    if index:
        variables["GOPROXY"] = index
    # One by one: it takes several of one module only.
    return [
        Step(("go", "install", "--", one if "@" in one else f"{one}@latest"), variables)
        for one in packages
    ]


OPEN_UP: Final = Step(("chmod", "-R", "a+rX", "--", CURRENT))
"""What is installed is for other users than the one who has installed it."""


def _error(message: str) -> pb.SessionError:
    error = pb.SessionError(
        message=message, retry_status=pb.RetryStatus(type=pb.RETRY_STATUS_TYPE_RETRYING)
    )
    error.unknown_error.SetInParent()
    return error


def kept(there: tuple[Failure, ...] | None, wanted: Packages, words: str) -> tuple[Failure, ...]:
    """What is missing when nothing new has come of it: what was before, or all there is."""
    if there is not None:
        return there
    return tuple(Failure(manager, ", ".join(listed), words) for manager, listed in wanted.lists)
