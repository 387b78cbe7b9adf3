"""A sandbox's control group, made and joined by the thread that starts the sandbox.

What a thread starts is in the thread's own groups from its first instruction on. To move it there
afterwards takes the kernel longer, and what it has started by then has to be moved as well. To what
shares out processors it is moved nevertheless, when it has been made and before anything of a
session's runs in it: all groups together have one process's share of a busy machine, and whoever
waits for a start would wait for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from services.hands.backends.cgroup import ControlGroups, Group
    from services.hands.domain.limits import Limits


class Joining:
    """Makes a group, and has the thread in it while the body runs, where threads may be in one.

    `group` is what was made, none where groups do not bound memory; it is removed if the body
    fails. `joined`: all that the body has started is in it, but for `Group.add_late`.
    """

    def __init__(self, groups: ControlGroups, name: str, limits: Limits) -> None:
        self._groups = groups
        self._name = name
        self._limits = limits
        self.group: Group | None = None
        self.joined = False

    def __enter__(self) -> Self:
        """Raises `OSError`."""
        if self._groups.bounds_memory:
            self.group = self._groups.make(self._name, self._limits)
            self.joined = self._enter(self.group)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.joined:
            self._groups.go_home()
        if kind is not None and self.group is not None:
            self.group.remove()

    def _enter(self, group: Group) -> bool:
        if self._groups.home is None:
            return False
        try:
            group.enter()
        except OSError:
            self._groups.go_home()  # it may be in some
            return False
        return True
