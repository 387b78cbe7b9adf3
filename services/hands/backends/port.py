"""The port to a sandbox technology.

A backend starts and ends sandboxes; it knows nothing of tools. In every sandbox runs the agent of
`services.hands.runner`, and the backend's whole contract is a byte stream to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from services.hands.domain.limits import Limits

_FORBIDDEN: Final = ("namespace", "Permission denied", "Operation not permitted")


class BackendUnavailable(Exception):  # noqa: N818  # a state of the machine, told to the operator
    """This machine cannot make sandboxes; the text says what to install or to change."""


class ImageGone(BackendUnavailable):
    """There is no such image, or none any more."""


def complaint(said: bytes, advice: str) -> str:
    """What becomes of what was said in the place of a sandbox that did not start.

    `advice` is added where the machine forbids it.
    """
    shown = said.decode("utf-8", "replace").strip() or "no reason was given"
    forbidden = any(word in shown for word in _FORBIDDEN) and advice
    return f"the sandbox did not start: {shown}{f'. {forbidden}' if forbidden else ''}"


@dataclass(frozen=True, slots=True)
class Volume:
    """A session's durable directories on the host, and the user id that owns them.

    `owner` is None where Drover has no right to other users: then they are its own.
    """

    root: Path
    owner: int | None

    @property
    def mounts(self) -> tuple[tuple[Path, str, bool], ...]:
        """Host directory, place in the sandbox, and whether the sandbox may write to it."""
        return (
            (self.root / "workspace", "/workspace", True),
            (self.root / "uploads", "/mnt/session/uploads", False),
            (self.root / "outputs", "/mnt/session/outputs", True),
            (self.root / "home", "/mnt/session/home", True),
            (self.root / "tool_outputs", "/mnt/session/tool_outputs", True),
            (self.root / "skills", "/mnt/skills", False),
            (self.root / "memory", "/mnt/memory", False),
        )


@dataclass(frozen=True, slots=True)
class WayOut:
    """What a sandbox's way out of it is made of, on the host: nothing of it may be written to.

    `directory` holds the socket and the certificates; `bundle` is the file below it that stands in
    the place of the system's own.
    """

    directory: Path
    bundle: Path


@dataclass(frozen=True, slots=True)
class PackagesMount:
    """A host directory with packages, its place in the sandbox, and whether it is being filled."""

    source: Path
    place: str
    writable: bool


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What to start. `hand_id` is unique for ever.

    `kind` names the backend and `image` what is in the sandbox beside the session's directories;
    empty is the installation's default. Without a `way_out` there is none. `stores` are directories
    below the volume's memory that the sandbox may write to, and that are there. `installs_system`:
    it is root's, whose system may be written to, and has nothing of a session's.
    """

    hand_id: str
    volume: Volume
    limits: Limits
    kind: str = ""
    image: str = ""
    way_out: WayOut | None = None
    packages: PackagesMount | None = None
    installs_system: bool = False
    stores: tuple[str, ...] = ()

    @property
    def mounts(self) -> tuple[tuple[Path, str, bool], ...]:
        """As the volume's, then the memory stores in it and the packages; none where the system is
        installed.
        """
        if self.installs_system:
            return ()
        memory = self.volume.root / "memory"
        stores = ((memory / name, f"/mnt/memory/{name}", True) for name in self.stores)
        one = self.packages
        more = () if one is None else ((one.source, one.place, one.writable),)
        return (*self.volume.mounts, *stores, *more)


class Sandbox(Protocol):
    """A running sandbox.

    `reader` and `writer` are the stream to its agent, which ends when the sandbox does. What comes
    from it is untrusted.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    resource_limits: Mapping[str, int]
    """What its agent sets for itself and all that it starts: values of RLIMIT_…, by their names."""
    advice: str
    """What to look at when the machine forbids the sandbox; may be empty."""
    has_way_out: bool
    """Whether its specification's way out is there: not every kind of sandbox can have one."""

    async def confine(self) -> None:
        """Puts the sandbox under its limits. Called once its agent is up, before it runs anything.

        Raises `OSError`.
        """
        ...

    async def kill(self) -> None:
        """Ends every process of the sandbox; none is left when this returns. Idempotent."""
        ...

    async def ended(self) -> str:
        """Waits until no process is left; why it ended, or empty when nothing is known."""
        ...


@dataclass(frozen=True, slots=True)
class Layer:
    """An image with what a sandbox has installed in its system, and a text kept with it."""

    image: str
    note: str


class Layers(Protocol):
    """Images that this installation has made of others, each by a key. All raise
    `BackendUnavailable`.
    """

    async def find(self, key: str) -> Layer | None:
        """The one that counts."""
        ...

    async def keep(self, key: str, hand_id: str, note: str) -> Layer:
        """Makes what a sandbox has written to its system the one that counts, in one step."""
        ...

    async def size(self, hand_id: str) -> int:
        """Bytes that a sandbox has written to its system."""
        ...

    def free(self) -> int | None:
        """Bytes free where that is written, and where images are made; None if it is not known."""
        ...

    async def prune(self, keys: Collection[str]) -> None:
        """Removes what none of these keys leads to, where no sandbox has it."""
        ...


class Backend(Protocol):
    """Starts sandboxes."""

    name: str

    async def start(self) -> None:
        """Gets ready, and ends what a dead process of this installation left running.

        A machine that cannot make sandboxes is no error here: `launch` tells.
        """
        ...

    async def launch(self, spec: SandboxSpec) -> Sandbox:
        """Starts a sandbox; its agent may still be on its way up.

        Raises `BackendUnavailable`.
        """
        ...

    async def system(self, kind: str, image: str) -> str:
        """What the system in such a sandbox is: what was built in one runs in all of the same.

        Raises `BackendUnavailable`.
        """
        ...

    async def layers(self, kind: str) -> Layers | None:
        """Where its images are kept; nothing for kinds without any of their own making.

        Raises `BackendUnavailable`, with why the machine cannot keep any.
        """
        ...

    async def close(self) -> None:
        """Lets go of what `start` took. Every sandbox has been killed before."""
        ...
