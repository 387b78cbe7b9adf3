"""Files that are there as a whole or not at all, and are read by whom they are for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_PRIVATE: Final = 0o600
_PUBLIC: Final = 0o644


def write_private(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Writes a file that this user alone may read. A `durable` one outlives the machine's crash."""
    _write(path, data, _PRIVATE, durable=durable)


def write_public(path: Path, data: bytes) -> None:
    """Writes a file that anybody may read who gets that far."""
    _write(path, data, _PUBLIC, durable=True)


def _write(path: Path, data: bytes, mode: int, *, durable: bool) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(descriptor)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
