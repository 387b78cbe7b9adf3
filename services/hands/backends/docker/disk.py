"""The disk that the engine writes to what is written in its containers, and their images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.hands.backends.docker.container import Places

_ELSEWHERE: Final = "io.containerd.snapshotter"
"""In the engine's words on its storage driver: containerd keeps them, and does not say where."""


def of_engine(info: Mapping[str, Any], places: Places) -> Path | None:
    """A directory of this process's on that disk; None where none is known to be.

    Where the hands are in a container, theirs is if the engine has put it among its own data.
    """
    root = Path(str(info.get("DockerRootDir") or ""))
    driver = [str(word) for row in info.get("DriverStatus") or () for word in row]
    if not root.is_absolute() or any(_ELSEWHERE in word for word in driver):
        return None
    if places.there is not None:
        return places.here if places.there.is_relative_to(root) else None
    return root if root.is_dir() else None


def free(directory: Path | None) -> int | None:
    """Bytes that may still be written to a directory's disk; None if that is not known."""
    if directory is None:
        return None
    try:
        system = os.statvfs(directory)
    except OSError:
        return None
    return system.f_bavail * system.f_frsize
