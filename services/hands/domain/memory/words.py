"""What the agent is told of its memory, behind the result of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from services.hands.domain.memory.known import MAX_BYTES, MAX_FILES
from services.hands.domain.memory.paths import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST: Final = 20
_UNCHANGED: Final = "The store has what it had before."

TOO_LARGE: Final = (
    f"it is larger than {MAX_BYTES:,} bytes. {_UNCHANGED} Make it shorter, or divide it."
)
NOT_TEXT: Final = f"it is not UTF-8 text, and memories are. {_UNCHANGED}"
UNREADABLE: Final = f"it could not be read. {_UNCHANGED}"
ARCHIVED: Final = "its memory store is archived, and takes no changes."
GONE: Final = "its memory store was deleted."
TOO_MANY: Final = (
    f"it has more than {MAX_FILES:,} files, or very many directories, so that not all were looked "
    "at: what is not stored is not known, and deletions were not stored. Remove some."
)


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for the agent. `is_error`: something that it did is not stored."""

    text: str
    is_error: bool = True


def not_stored(place: str, path: str, why: str) -> Notice:
    """A file that the store has not taken."""
    return Notice(f"{place}{shown(path)} is not stored: {why}")


def not_deleted(place: str, path: str, why: str) -> Notice:
    """A deletion that the store has not taken."""
    return Notice(f"The deletion of {place}{shown(path)} is not stored: {why}")


def odd(place: str, path: str, kind: str) -> Notice:
    """Something that is no file."""
    return not_stored(place, path, f"it is a {kind}; only regular files with text are.")


def path_refused(place: str, path: str, why: str) -> Notice:
    """A file with a name that no memory can have."""
    return not_stored(place, path, f"{why}. Give it another one.")


def clash(place: str, path: str, kept: str) -> Notice:
    """Both have changed."""
    return Notice(
        f"{place}{shown(path)} was changed in the store by somebody else at the same time, and "
        f"your version was not stored. The file has the store's version now; yours is at {kept}. "
        "Read both, and write what is to stand."
    )


def displaced(place: str, path: str, kept: str) -> Notice:
    """What was in the way of a memory."""
    return Notice(
        f"{place}{shown(path)} is a memory of the store, and what was there in its place was not "
        f"stored. It is at {kept} now."
    )


def restored(place: str, path: str) -> Notice:
    """A deletion that did not happen."""
    return Notice(
        f"{place}{shown(path)} was changed in the store by somebody else, so that your deletion of "
        "it was not stored. The file is back, with the store's version."
    )


def deleted_there(place: str, path: str) -> Notice:
    """A file that goes on as a new memory."""
    return Notice(
        f"{place}{shown(path)} was deleted from the store by somebody else while you changed it. "
        "Your version is stored as a new memory.",
        is_error=False,
    )


def unwritten(place: str, path: str, why: str) -> Notice:
    """A memory that could not be written to its file."""
    return Notice(
        f"{place}{shown(path)} is another in the store by now, which could not be written to the "
        f"file: {why}. It is tried again with the next call.",
        is_error=False,
    )


def unbrought(place: str, path: str) -> Notice:
    """A memory that no file can be."""
    return Notice(
        f"{place}{shown(path)} is in the store, but has a name that is too long for a file here.",
        is_error=False,
    )


def archived(place: str) -> Notice:
    """A store became archived."""
    return Notice(
        f"The memory store at {place} was archived: it can be read, and changes of it are not "
        "stored any more.",
        is_error=False,
    )


def gone(place: str) -> Notice:
    """A store was deleted."""
    return Notice(
        f"The memory store at {place} was deleted, and its memories with it: nothing that is "
        "written there is stored.",
        is_error=False,
    )


def unread() -> Notice:
    """The store cannot be asked."""
    return Notice(
        "Memory stores cannot be reached: what is in /mnt/memory may be out of date or incomplete. "
        "It is tried again with the next call.",
        is_error=False,
    )


def broken(why: str) -> Notice:
    """The directories cannot be worked on."""
    return Notice(
        f"The directories of memory could not be compared with their stores: {why}. What was "
        "written there may not be stored. It is tried again with the next call."
    )


def waiting(paths: Sequence[str]) -> Notice:
    """Changes that the store could not be told of."""
    named = ", ".join(map(shown, paths[:_MOST]))
    more = f" and {len(paths) - _MOST} more" if len(paths) > _MOST else ""
    return Notice(
        f"The memory stores cannot be reached, or are slow: these changes are not stored yet: "
        f"{named}{more}. The files are kept as they are, and it is tried again, with the next call "
        "at the latest."
    )


def unlisted(count: int) -> Notice:
    """Notices that were too many to be kept."""
    return Notice(
        f"There were {count:,} more such notices, which are not listed: not all that was written "
        "below /mnt/memory is stored."
    )


def caught_up() -> Notice:
    """What waited is stored."""
    return Notice("Memory stores can be reached again, and what waited is stored.", is_error=False)
