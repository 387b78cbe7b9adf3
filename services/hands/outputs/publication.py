"""Publishing what has changed below one hand's outputs, once."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.errors import DroverError, Reason
from services.hands.domain.address import split
from services.hands.outputs import scan as looking
from services.hands.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from services.hands.outputs.record import Record
    from services.hands.outputs.scan import Bounds, Output

_REFUSALS: Final = frozenset({Reason.INVALID_ARGUMENT, Reason.REQUEST_TOO_LARGE})
_FULL: Final = "storage_quota_exceeded"

_log = structlog.get_logger("hands.outputs")


class Registry(Protocol):
    """Where files of sessions go."""

    async def publish(
        self,
        workspace_id: str,
        session_id: str,
        name: str,
        size: int,
        pieces: AsyncIterator[bytes],
    ) -> object:
        """Stores a file that a session made, in the place of its earlier one of that name.

        Nothing is stored where `pieces` raises, which is raised here. Raises `DroverError`.
        """
        ...

    async def made(self, workspace_id: str, session_id: str) -> Mapping[str, int]:
        """When the files were stored that a session has made, by name, in nanoseconds since the
        epoch. Raises `DroverError`.
        """
        ...


class Owners(Protocol):
    """Who has which session."""

    async def workspace_of(self, session_id: str) -> str:
        """The session's workspace; empty where it is not known. Raises `DroverError`."""
        ...


@dataclass(slots=True)
class _Round:
    """What came of it so far. `refused`: why, by path. `waits`: something is to be tried again."""

    where: str
    root: Path
    record: Record
    refused: dict[str, str]
    waits: bool = False
    failure: DroverError | OSError | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """Publishes what is below outputs. `at_once` bounds the uploads of the process."""

    registry: Registry
    owners: Owners
    bounds: Bounds
    at_once: int = 4
    traffic: Traffic = field(default_factory=Traffic)
    _room: asyncio.Semaphore = field(init=False)
    _looks: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        """Makes what bounds it."""
        object.__setattr__(self, "_room", asyncio.Semaphore(self.at_once))
        object.__setattr__(self, "_looks", asyncio.Semaphore(self.at_once))

    async def publish(self, where: str, root: Path, record: Record, news: dict[str, str]) -> bool:
        """Publishes what has changed in a volume since its record; whether all of it was.

        `news` gets why what is not published, by path, of which that is not known yet. Raises
        `DroverError` and `OSError`.
        """
        async with self._looks:
            found = await asyncio.to_thread(looking.scan, root, self.bounds)
        round_ = _Round(where, root, record, dict(found.refused))
        chosen = self._chosen(found.files, round_)
        changed = [
            output
            for output in chosen
            if output.state
            not in {record.published.get(output.path), record.refused.get(output.path)}
        ]
        before = record.copy()
        try:
            if changed:
                await self._upload(changed, round_)
        finally:
            record.keep({output.path for output in chosen}, round_.refused)
            told = before.refused
            news |= {path: why for path, why in round_.refused.items() if path not in told}
            if record != before:
                await asyncio.to_thread(record.write, root)
        if round_.failure is not None:
            raise round_.failure
        return not round_.waits

    def _chosen(self, files: list[Output], round_: _Round) -> list[Output]:
        """As many as are published, those first that were before."""
        most = self.bounds.files
        if len(files) <= most:
            return files
        files = sorted(files, key=lambda one: one.path not in round_.record.published)
        for output in files[most:]:
            round_.refused[output.path] = f"there are more than {most} files"
        return files[:most]

    async def _upload(self, changed: list[Output], round_: _Round) -> None:
        session_id = split(round_.where)[0]
        workspace_id = await self.owners.workspace_of(session_id)
        if not workspace_id:
            _log.warning("outputs_of_nobody", session_id=session_id)
            return
        if round_.record.restored:
            changed = await self._newer(workspace_id, changed, round_)
        async with asyncio.TaskGroup() as tasks:
            for output in changed:
                tasks.create_task(self._one(workspace_id, output, round_))

    async def _newer(
        self, workspace_id: str, changed: list[Output], round_: _Round
    ) -> list[Output]:
        """Of a volume that was restored, what is newer than what the session has published."""
        record = round_.record
        made = await self.registry.made(workspace_id, split(round_.where)[0])
        known = [
            output
            for output in changed
            if output.modified_ns <= made.get(_name(round_.where, output), -1)
        ]
        record.published |= {output.path: output.state for output in known}
        record.restored = False
        return [output for output in changed if output.path not in record.published]

    async def _one(self, workspace_id: str, output: Output, round_: _Round) -> None:
        record = round_.record
        async with self._room:
            if round_.failure is not None:
                return  # so would this
            try:
                await self._send(workspace_id, output, round_)
            except looking.Changed:
                round_.waits = True
            except looking.Refused as refusal:
                self.traffic.published("refused")
                round_.refused[output.path] = str(refusal)
                record.refused[output.path] = output.state
            except DroverError as error:
                self.traffic.published("refused" if error.reason in _REFUSALS else "failed")
                _refused(error, output, round_)
            except OSError as error:
                self.traffic.published("failed")
                round_.failure = error
            else:
                round_.waits = round_.waits or output.is_young
                if not output.is_young:
                    record.published[output.path] = output.state

    async def _send(self, workspace_id: str, output: Output, round_: _Round) -> None:
        session_id, name = split(round_.where)[0], _name(round_.where, output)
        with looking.opened(round_.root, output, self.bounds) as descriptor:
            reader = _Reader(descriptor, output)
            try:
                pieces = reader.pieces()
                await self.registry.publish(workspace_id, session_id, name, output.size, pieces)
            finally:
                reader.stop()
        self.traffic.published("published", output.size)
        _log.info("output_published", session_id=session_id, path=name, bytes=output.size)


def _refused(error: DroverError, output: Output, round_: _Round) -> None:
    """What becomes of an output that the registry has not taken."""
    record = round_.record
    if error.error_code == _FULL:  # until somebody deletes files: told, and tried again
        round_.refused[output.path] = error.message
        round_.waits = True
    elif error.reason in _REFUSALS:
        round_.refused[output.path] = error.message
        record.refused[output.path] = output.state
    elif error.reason is Reason.NOT_FOUND:  # the session was deleted
        record.published[output.path] = output.state
    else:
        round_.failure = error


def _name(where: str, output: Output) -> str:
    """The file's name: hands have outputs of their own, and a session's files one name each."""
    hand = split(where)[1]
    return f"{hand}/{output.path}" if hand else output.path


class _Reader:
    """Reads a file as it was found. An upload that was given up may go on to ask for more."""

    def __init__(self, descriptor: int, output: Output) -> None:
        self._descriptor = descriptor
        self._output = output
        self._reading = threading.Lock()
        self._stopped = False

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its bytes. Raises `Changed` and `OSError`."""
        at = 0
        while data := await asyncio.to_thread(self._piece, at):
            at += len(data)
            yield data

    def stop(self) -> None:
        """Nothing is read afterwards: its descriptor may be another file's then."""
        with self._reading:
            self._stopped = True

    def _piece(self, at: int) -> bytes:
        with self._reading:
            if self._stopped:
                raise looking.Changed
            data = looking.piece(self._descriptor, self._output, at)
            if at + len(data) == self._output.size:
                looking.check(self._descriptor, self._output)
            return data
