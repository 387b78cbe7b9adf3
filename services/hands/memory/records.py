"""What is known of a volume's memory stores, kept beside its directories: no sandbox sees it.

It is lost with the volume, and must be: without its files it would say that they were deleted. A
process that dies leaves it whole. A machine that dies may leave it and not the files, or those
empty, and so it counts for no later start of the machine: the files are then compared with the
store.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from services.hands import boot
from services.hands.domain.memory.known import Fingerprint, Known, StoreState
from services.hands.domain.mounts import MountedStore, Mounts

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = "memory.json"
_FORMAT: Final = 1


@dataclass(slots=True)
class Record:
    """Whose a volume's directories of memory are, and what is known of each, by its name.

    `open`: a sandbox may have written to them since they were looked at last.
    """

    workspace_id: str = ""
    stores: dict[str, StoreState] = field(default_factory=dict)
    read_only: list[str] = field(default_factory=list)
    open: bool = False

    @property
    def mounts(self) -> Mounts:
        """What the volume's hand was given."""
        stores = tuple(
            MountedStore(state.store_id, slug, slug in self.read_only)
            for slug, state in self.stores.items()
        )
        return Mounts(self.workspace_id, stores=stores)


class NoRecord(FileNotFoundError):  # noqa: N818  # what a volume is
    """A volume has none: it is another than the one that something is known of."""


def exists(root: Path) -> bool:
    """Whether a volume has one."""
    return (root / _NAME).exists()


def check_there(root: Path) -> None:
    """Raises `NoRecord` for a volume that has none."""
    if not exists(root):
        raise NoRecord(errno.ENOENT, "its volume is another one")


def read(root: Path) -> Record:
    """What is known of a volume; nothing of one that has no record. Raises `OSError`."""
    try:
        return _record(orjson.loads((root / _NAME).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return Record()


def write(root: Path, record: Record, *, is_first: bool = False) -> None:
    """Keeps it, all of it or nothing. Raises `OSError`, and `NoRecord` where there is none yet and
    this is not the first.
    """
    if not is_first:
        check_there(root)
    unfinished = root / f"{_NAME}.new"
    data = orjson.dumps(
        {
            "format": _FORMAT,
            "boot": boot.boot_id(),
            "open": record.open,
            "read_only": record.read_only,
            "workspace_id": record.workspace_id,
            "stores": {slug: _told(state) for slug, state in record.stores.items()},
        }
    )
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123  # a descriptor
        file.write(data)
    unfinished.rename(root / _NAME)


def _told(state: StoreState) -> dict[str, Any]:
    return {
        "id": state.store_id,
        "revision": state.revision,
        "sent": state.sent,
        "memories": {
            path: [known.memory_id, known.sha256, known.here, _seen(known.seen)]
            for path, known in state.memories.items()
        },
    }


def _seen(seen: Fingerprint | None) -> list[int] | None:
    return None if seen is None else [seen.size, seen.modified, seen.changed, seen.inode]


def _record(told: dict[str, Any]) -> Record:
    if told["format"] != _FORMAT:
        return Record()
    stores = {}
    same_boot = told["boot"] == boot.boot_id()
    for slug, one in told["stores"].items():
        if not same_boot:
            stores[slug] = StoreState(one["id"])
            continue
        memories = {
            path: Known(memory_id, sha256, here, None if seen is None else Fingerprint(*seen))
            for path, (memory_id, sha256, here, seen) in one["memories"].items()
        }
        stores[slug] = StoreState(one["id"], one["revision"], memories, dict(one["sent"]))
    return Record(told["workspace_id"], stores, list(told["read_only"]), bool(told["open"]))
