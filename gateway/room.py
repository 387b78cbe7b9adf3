"""How many transfers of files go on at once: what each of them holds, all hold together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from types import TracebackType

_SOON: Final = 1.0


class Room:
    """Room for `most` at once, entered by each of them and left at its end.

    Raises RESOURCE_EXHAUSTED at once where there is none: those who wait would hold something, too.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def enter(self) -> None:
        """As `with` does, for who leaves elsewhere."""
        if not self._left:
            message = "too many files are on their way, try again"
            raise DroverError(Reason.RESOURCE_EXHAUSTED, message, retry_after=_SOON)
        self._left -= 1

    def leave(self) -> None:
        """Another may enter."""
        self._left += 1
