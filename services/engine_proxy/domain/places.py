"""Which of the engine's directories a container may be given."""

from __future__ import annotations

import hashlib
import posixpath
from dataclasses import dataclass
from typing import Any

from services.engine_proxy.domain.refusal import denied


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume of the engine's, and where it is on the engine's machine."""

    name: str
    mountpoint: str


@dataclass(frozen=True, slots=True)
class Places:
    """The directories below which everything may be mounted, as the engine's machine names them.

    `by_subpath`: the engine mounts a path of a volume without following links in it (API 1.45), so
    that what is below the volume's place is asked for in that way. A path alone is followed
    wherever its links lead, at the moment of mounting, which nobody can look at before.
    """

    roots: tuple[str, ...]
    volume: Volume | None = None
    by_subpath: bool = False

    @property
    def identity(self) -> str:
        """What tells the containers of these places from all others of the engine."""
        every = sorted({*self.roots, *([self.volume.mountpoint] if self.volume else [])})
        return hashlib.sha256("\0".join(every).encode()).hexdigest()[:12]

    def mount(self, source: str, target: str, *, read_only: bool) -> dict[str, Any]:
        """What the engine is told of a mount. Raises `DroverError` for a place elsewhere."""
        if not is_plain(source):
            raise denied(f"{source[:200]!r} is no plain absolute path")
        found = {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
        volume = self.volume
        if volume is not None and (path := _below(volume.mountpoint, source)):
            if self.by_subpath:
                found |= {"Type": "volume", "Source": volume.name}
                return found | {"VolumeOptions": {"NoCopy": True, "Subpath": path}}
            return found
        if not any(_below(root, source) for root in self.roots):
            raise denied(
                f"{source[:200]} is below none of {', '.join(self._names())}: name the directory "
                "of the hands' data in DROVER_ENGINE_BIND_ROOTS, or its volume in "
                "DROVER_ENGINE_DATA_VOLUME"
            )
        return found

    def _names(self) -> tuple[str, ...]:
        return (*self.roots, *([self.volume.mountpoint] if self.volume else []))


def is_plain(path: str) -> bool:
    """Whether a path is absolute, and says where it leads: no `..`, no `//`, nothing unseen."""
    return (
        path.startswith("/")
        and not path.startswith("//")
        and posixpath.normpath(path) == path
        and path.isprintable()
    )


def _below(root: str, path: str) -> str:
    """The rest of a path below a root; empty if it is not below it."""
    start = f"{root}/"
    return path[len(start) :] if path.startswith(start) else ""
