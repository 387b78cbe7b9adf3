"""A store of large objects behind one small port: a directory, or a bucket that speaks S3."""

from __future__ import annotations

import asyncio
import glob
import os
import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from chassis.errors import CannotStartError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping

    from obstore.store import LocalStore, S3Store

T = TypeVar("T")

PIECE: Final = 8 * 1024 * 1024
"""Bytes of a part of an upload, and of one request for a part of an object."""
SMALLEST_PIECE: Final = 5 * 1024 * 1024
"""S3 takes no smaller part of an upload, but for the last."""
_AT_ONCE: Final = 2
_ABORT_SECONDS: Final = 1.5
_PROBE: Final = "drover-probe"
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_STATUS: Final = re.compile(r"status code: (\d{3} [A-Za-z ]+)")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>")
_SYSTEM: Final = re.compile(r"([A-Za-z ,]{1,80}) \(os error (\d+)\)")


class ObjectsAway(Exception):  # noqa: N818  # a state of the store
    """The store did not do what it was asked; the text says why, and holds no secret."""


class ObjectGone(ObjectsAway):
    """There is no such object."""


class Objects(Protocol):
    """Objects by their names. Every method raises `ObjectsAway`."""

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Stores an object, which is there as a whole or not at all; durable on return.

        At most a few `PIECE`s are in memory. What `pieces` raises is raised here, and nothing is
        stored then.
        """
        ...

    def read(self, name: str, size: int) -> AsyncGenerator[bytes, None]:
        """The first `size` bytes of an object, in pieces.

        The next one is asked for ahead where it comes over a network.
        """
        ...

    async def delete(self, name: str) -> None:
        """Deletes an object, and what an upload of it left that broke off, if there is any."""
        ...

    async def probe(self) -> None:
        """Stores, reads and deletes a small object."""
        ...


def open_objects(
    url: str, environment: Mapping[str, str] | None = None, *, piece: int = PIECE
) -> Objects:
    """The store at `file:///directory` or `s3://bucket/prefix`; asks it nothing yet.

    `piece` bounds the memory that each upload and each reading takes; of an upload to a bucket it
    is `SMALLEST_PIECE` at the least. S3's endpoint, region and credentials come from `environment`,
    by their usual names (`AWS_…`). Raises `CannotStartError`.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise CannotStartError("a store's URL takes no credentials and no options")
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return _directory(Path(unquote(parts.path)), piece)
    if parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc):
        given = os.environ if environment is None else environment
        prefix = unquote(parts.path).strip("/")
        return _bucket(parts.netloc, prefix, given, piece)
    raise CannotStartError("a store's URL must be file:///directory or s3://bucket/prefix")


def _directory(root: Path, piece: int) -> Objects:
    from obstore.store import LocalStore

    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        msg = f"the directory {root} cannot be made: {error.strerror}"
        raise CannotStartError(msg) from error
    return _Objects(LocalStore(root, automatic_cleanup=True), root, piece)


def _bucket(bucket: str, prefix: str, environment: Mapping[str, str], piece: int) -> Objects:
    from obstore.store import S3Store

    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL", "")
    given = {
        name: environment[name]
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        if environment.get(name)
    }
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    store = S3Store(
        bucket,
        prefix=prefix or None,
        config={  # type: ignore[arg-type]  # the names of the variables are taken, too
            **given,
            **({"AWS_ENDPOINT_URL": endpoint} if endpoint else {}),
            **({"AWS_REGION": region} if region else {}),
            "disable_bulk_delete": True,  # not every S3 has it
        },
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=5),
            "timeout": timedelta(seconds=60),  # of one part
        },
        retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
    )
    return _Objects(store, None, piece)


class _Objects:
    """`Objects` over the library; `root` where it is a directory of this machine."""

    def __init__(self, store: LocalStore | S3Store, root: Path | None, piece: int) -> None:
        self._store = store
        self._root = root
        self._size = piece
        self._part = piece if root is not None else max(piece, SMALLEST_PIECE)

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        from obstore import put_async

        start: list[bytes] = []
        collected = 0
        while collected < self._part:
            try:
                start.append(await anext(pieces))
            except StopAsyncIteration:
                upload = put_async(self._store, name, b"".join(start), use_multipart=False)
                await _answered(upload)
                break
            collected += len(start[-1])
        else:
            await self._put_in_parts(name, start, pieces)
        if self._root is not None:
            await asyncio.to_thread(_make_durable, self._root, name)

    async def _put_in_parts(
        self, name: str, start: list[bytes], rest: AsyncIterator[bytes]
    ) -> None:
        from obstore import put_async

        # The library aborts an upload whose pieces fail, but not one that is cancelled.
        stopped = False

        async def pieces() -> AsyncIterator[bytes]:
            start.reverse()
            while start:  # each is let go of once it is given on
                yield start.pop()
            async for piece in rest:
                if stopped:
                    raise ObjectsAway("the upload was stopped")
                yield piece

        upload = asyncio.ensure_future(
            put_async(self._store, name, pieces(), chunk_size=self._part, max_concurrency=_AT_ONCE)
        )
        try:
            await _answered(asyncio.shield(upload))
        except asyncio.CancelledError:
            stopped = True
            await asyncio.wait([upload], timeout=_ABORT_SECONDS)
            if not upload.cancel():
                upload.exception()
            raise

    async def read(self, name: str, size: int) -> AsyncGenerator[bytes, None]:
        starts = range(0, size, self._size)
        ahead = self._piece(name, starts[0], size) if starts else None
        try:
            for start in starts:
                if ahead is None:
                    return
                piece = bytes(await _answered(ahead))
                ahead = None  # which has the piece once more
                following = start + self._size
                if self._root is None and following < size:
                    ahead = self._piece(name, following, size)
                yield piece
                del piece
                if self._root is not None and following < size:
                    ahead = self._piece(name, following, size)
        finally:
            if ahead is not None:
                ahead.cancel()
                with suppress(asyncio.CancelledError, ObjectsAway):
                    await _answered(ahead)

    def _piece(self, name: str, start: int, size: int) -> asyncio.Future[bytes]:
        from obstore import get_range_async

        length = min(self._size, size - start)
        asked: Any = get_range_async(self._store, name, start=start, length=length)
        future: asyncio.Future[bytes] = asyncio.ensure_future(asked)
        return future

    async def delete(self, name: str) -> None:
        from obstore import delete_async

        with suppress(ObjectGone):
            await _answered(delete_async(self._store, name))
        if self._root is not None:
            await asyncio.to_thread(_drop_leftovers, self._root, name)

    async def probe(self) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"drover"

        name = f"{_PROBE}-{os.getpid()}"
        await self.put(name, pieces())
        found = b"".join([piece async for piece in self.read(name, 6)])
        await self.delete(name)
        if found != b"drover":
            raise ObjectsAway("it does not give back what was stored")


async def _answered(answer: Awaitable[T]) -> T:
    """The library's answer. Its errors quote requests, with what is secret in their headers."""
    from obstore.exceptions import BaseError

    try:
        return await answer
    except FileNotFoundError:
        raise ObjectGone("it has no such object") from None
    except (BaseError, OSError) as error:
        raise ObjectsAway(_told(str(error))) from None


def _told(text: str) -> str:
    status, code, system = (kind.search(text) for kind in (_STATUS, _CODE, _SYSTEM))
    if status is not None:
        return f"it answers {status[1].strip()}{f' ({code[1]})' if code else ''}"
    if system is not None:
        return f"{system[1].strip()} (error {system[2]})"
    return "it cannot be reached, or breaks off"


def _make_durable(root: Path, name: str) -> None:
    path = root / name
    try:
        for place in (path, *path.parents):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if place == root:
                break
    except OSError as error:
        raise ObjectsAway(f"{error.strerror} (error {error.errno})") from error


def _drop_leftovers(root: Path, name: str) -> None:
    """Deletes what an upload to a directory writes until it is whole."""
    path = root / name
    try:
        for left in path.parent.glob(f"{glob.escape(path.name)}#*"):
            left.unlink(missing_ok=True)
    except OSError as error:
        raise ObjectsAway(f"{error.strerror} (error {error.errno})") from error
    if path.parent != root:
        with suppress(OSError):  # others are in there, or it is gone
            path.parent.rmdir()
