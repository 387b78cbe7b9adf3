"""Keys in a file of this host: the default, which needs nothing else."""

from __future__ import annotations

import asyncio
import base64
import binascii
import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from chassis.errors import CannotStartError
from services.vault_proxy.crypto.aead import KEY_BYTES, draw_key
from services.vault_proxy.crypto.provider import unavailable, unwrap_with, wrap_with
from services.vault_proxy.domain.sealed import WrappedKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME: Final = "file"
_OTHERS: Final = 0o077


class FileKeys:
    """One line a key, `<number> <base64>`; the last is the current one.

    The file is read again when a key is asked for that is not known: another replica may have made
    it. Whoever loses it loses every secret: it belongs into a backup, apart from the database's.
    """

    name = NAME

    def __init__(self, path: Path, keys: dict[str, bytes]) -> None:
        self._path = path
        self._keys = keys
        self._changed_at = _changed_at(path)

    @classmethod
    def open(cls, path: Path, *, make: bool) -> FileKeys:
        """Reads the file, and `make`s it with a first key where there is none.

        Raises `CannotStartError` for a file that is missing, damaged, or open to others.
        """
        if make and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(path):
                if not path.exists():
                    _write(path, {f"{NAME}:1": draw_key()})
        return cls(path, _read(path))

    async def current(self) -> str:
        """The last key of the file, be it another replica that made it."""
        if _changed_at(self._path) != self._changed_at:
            await self._read_again()
        return next(reversed(self._keys))

    async def wrap(self, key: bytes, context: bytes) -> WrappedKey:
        """Encrypts with the current key."""
        name = await self.current()
        return wrap_with(self._keys, name, key, context)

    async def unwrap(self, wrapped: WrappedKey, context: bytes) -> bytes:
        """Decrypts with the key that it was wrapped by."""
        if wrapped.key not in self._keys:
            await self._read_again()
        return unwrap_with(self._keys, wrapped, context)

    async def renew(self) -> str:
        """Appends a key; the file is replaced as a whole."""
        try:
            await asyncio.to_thread(_append, self._path)
        except CannotStartError as error:
            raise unavailable(NAME, f"is out of order: {error}") from None
        except OSError as error:
            why = f"cannot write {self._path} ({error.strerror}): no key was made"
            raise unavailable(NAME, why) from None
        return await self.current()

    async def _read_again(self) -> None:
        changed_at = _changed_at(self._path)
        try:
            self._keys = await asyncio.to_thread(_read, self._path)
        except CannotStartError as error:
            raise unavailable(NAME, f"is out of order: {error}") from None
        self._changed_at = changed_at


def parsed(lines: list[str], provider: str) -> dict[str, bytes]:
    """Keys by their names, in order. Raises `ValueError`, which holds none of them."""
    keys: dict[str, bytes] = {}
    for line in lines:
        number, _, text = line.partition(" ")
        try:
            key = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not (number.isascii() and number.isdigit()) or len(key) != KEY_BYTES:
            msg = f"key {len(keys) + 1} must be a number and {KEY_BYTES} bytes in base64"
            raise ValueError(msg)
        name = f"{provider}:{int(number)}"
        if name in keys:
            msg = f"key {len(keys) + 1} has the number of another"
            raise ValueError(msg)
        keys[name] = key
    if not keys:
        msg = "there is no key"
        raise ValueError(msg)
    return keys


def _read(path: Path) -> dict[str, bytes]:
    try:
        with path.open(encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = [line for line in file.read().splitlines() if line and line[0] != "#"]
    except OSError as error:
        msg = (
            f"the keys of stored credentials cannot be read from {path} ({error.strerror}): "
            "restore the file from its backup, or name it with DROVER_VAULT_KEYS_FILE; without it "
            "no stored secret can be opened"
        )
        raise CannotStartError(msg) from error
    except UnicodeDecodeError:
        lines, mode = ["?"], 0
    if mode & _OTHERS:
        msg = f"{path} is open to others than its owner: chmod 600 it"
        raise CannotStartError(msg)
    try:
        return parsed(lines, NAME)
    except ValueError as error:
        msg = f"{path} is damaged ({error}): restore it from its backup"
        raise CannotStartError(msg) from None


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _append(path: Path) -> None:
    with _locked(path):
        keys = _read(path)
        number = 1 + max(int(name.partition(":")[2]) for name in keys)
        keys[f"{NAME}:{number}"] = draw_key()
        _write(path, keys)


def _write(path: Path, keys: dict[str, bytes]) -> None:
    text = "".join(
        f"{name.partition(':')[2]} {base64.b64encode(key).decode()}\n" for name, key in keys.items()
    )
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write("# Keys of stored credentials. Keep a copy apart from the database's backup.\n")
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    with _opened(path.parent) as directory:
        os.fsync(directory)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Has other processes wait that make keys in the same directory."""
    with _opened(path.parent) as directory:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
