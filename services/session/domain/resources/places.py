"""Where things are mounted: nothing lies in the place of anything else."""

from __future__ import annotations

from bisect import bisect, insort

from services.session.domain.admission import refuse


class Places:
    """Mount paths that are taken, each by one whose name is told to who wants it, too."""

    def __init__(self) -> None:
        # In order, with a slash behind each: what lies in a place comes right behind it. Since
        # nothing does, a path's neighbours are all that can be in its way.
        self._taken: list[str] = []
        self._owners: dict[str, str] = {}

    def take(self, mount_path: str, owner: str, path: str) -> None:
        """Takes a place for `owner`. Raises INVALID_ARGUMENT, naming `path`, if it is not free."""
        place = f"{mount_path}/"
        at = bisect(self._taken, place)
        for before in self._taken[max(0, at - 1) : at]:
            if place.startswith(before):
                raise refuse(path, f"lies where {self._owners[before]} is mounted")
        for behind in self._taken[at : at + 1]:
            if behind.startswith(place):
                raise refuse(path, f"{self._owners[behind]} is mounted below it")
        insort(self._taken, place)
        self._owners[place] = owner
