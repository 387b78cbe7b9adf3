"""Where things are mounted: nothing lies in the place of anything else."""

from __future__ import annotations

from services.session.domain.admission import refuse


class Places:
    """Mount paths that are taken, each by one whose name is told to who wants it, too."""

    def __init__(self) -> None:
        self._at: dict[str, str] = {}
        self._around: dict[str, str] = {}

    def take(self, mount_path: str, owner: str, path: str) -> None:
        """Takes a place for `owner`. Raises INVALID_ARGUMENT, naming `path`, if it is not free."""
        above = _above(mount_path)
        for place in (mount_path, *above):
            if place in self._at:
                raise refuse(path, f"lies where {self._at[place]} is mounted")
        if mount_path in self._around:
            raise refuse(path, f"{self._around[mount_path]} is mounted below it")
        self._at[mount_path] = owner
        for place in above:
            self._around.setdefault(place, owner)


def _above(mount_path: str) -> list[str]:
    """The directories that a place lies in, the nearest first."""
    found = []
    while (mount_path := mount_path.rpartition("/")[0]) != "":
        found.append(mount_path)
    return found
