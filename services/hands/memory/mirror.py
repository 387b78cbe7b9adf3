"""The memory stores in one hand, both ways: one look or change at a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from chassis.context import CallContext, call_context
from chassis.errors import DroverError, Reason
from services.hands.domain.memory import words
from services.hands.domain.memory.known import StoreState
from services.hands.domain.memory.notices import Notices
from services.hands.memory import looking, records
from services.hands.memory.placing import make, placing
from services.hands.memory.pulling import is_news, pull
from services.hands.memory.pushing import Pushing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.hands.backends.port import Volume
    from services.hands.domain.memory.words import Notice
    from services.hands.domain.mounts import MountedStore, Mounts
    from services.hands.memory.looking import Looked
    from services.hands.memory.pushing import Memories
    from services.hands.memory.records import Record

_ROUNDS: Final = 3
"""How often a store that moves on meanwhile is asked again before a change is given up."""
_PUSH_SECONDS: Final = 15.0
_REST_SECONDS: Final = 5.0
"""How long a store that did not answer in time is left alone: each attempt holds up a call."""
_MOST_TOLD: Final = 20

_log = structlog.get_logger("hands.memory")


class Mirror:
    """The stores of a session, as the directories of one volume.

    Whatever goes wrong is told by `take`, once; nothing is raised.
    """

    def __init__(self, memories: Memories, volume: Volume, session_id: str, mounts: Mounts) -> None:
        self._memories = memories
        self._volume = volume
        self._session_id = session_id
        self._workspace_id = mounts.workspace_id
        self._stores = mounts.stores
        self._record: Record | None = None
        self._lock = asyncio.Lock()
        self._notices = Notices()
        self._pending = True
        self._away = False
        self._waited = False
        self._rest_until = 0.0
        self._broken = ""

    @property
    def stores(self) -> tuple[MountedStore, ...]:
        """Which they are."""
        return self._stores

    @property
    def filled(self) -> bool:
        """Whether the directories have had all that the stores have, once."""
        return self._record is not None and not self._away

    @property
    def busy(self) -> bool:
        """Whether it is at work."""
        return self._lock.locked()

    @property
    def pending(self) -> bool:
        """Whether there may be something in the directories that is not stored."""
        return self._pending

    async def take_over(self, volume: Volume) -> None:
        """Goes on for another hand, over the same volume or one that was put in its place."""
        async with self._lock:
            # A new one has no record yet; without its files it would seem that all were deleted.
            if not await asyncio.to_thread(records.exists, volume.root):
                self._record = None
            self._volume, self._pending = volume, True

    def take(self) -> list[Notice]:
        """What is to be told, as much as one result should hold; the rest stays."""
        return self._notices.take(_MOST_TOLD)

    async def freshen(self) -> None:
        """Brings what is new in the stores, and stores what has waited."""
        await self._sync(pulls=True, pushes=self._pending)

    async def tick(self) -> None:
        """Both ways, while a call runs: files that are being written are left for later."""
        await self._sync(pulls=True, pushes=True, settled=True)

    async def store(self) -> None:
        """Stores what has changed in the directories."""
        await self._sync(pulls=False, pushes=True)

    async def glance(self) -> None:
        """Stores what has changed between calls, and is at rest."""
        await self._sync(pulls=False, pushes=True, settled=True)

    async def close(self) -> None:
        """Notes that nothing is left to be stored, if so; nothing may write there any more."""
        async with self._lock:
            if self._pending or self._record is None:
                return
            self._record.open = False
            with suppress(OSError):  # the next process looks once more than it needs to
                await asyncio.to_thread(records.write, self._volume.root, self._record)

    async def _sync(self, *, pulls: bool, pushes: bool, settled: bool = False) -> None:
        async with self._lock:
            with call_context(CallContext(self._workspace_id)):
                try:
                    await self._rounds(pulls=pulls, pushes=pushes, settled=settled)
                except records.NoRecord:
                    self._record = None  # all that was known is of another volume
                    self._break("their volume is another one by now")
                except OSError as error:
                    self._break(error.strerror or "it is not known why")
                except Exception:  # noqa: BLE001  # whatever it is, the calls go on
                    _log.exception("memory_sync_failed", session_id=self._session_id)
                    self._break("it is not known why")
                else:
                    self._broken = ""

    def _break(self, why: str) -> None:
        _log.warning("memory_not_synced", session_id=self._session_id, why=why)
        self._pending = True
        if self._broken != why:
            self._broken = why
            self._notices.add(words.broken(why))

    async def _rounds(self, *, pulls: bool, pushes: bool, settled: bool) -> None:
        if self._record is None:
            self._record = await asyncio.to_thread(self._open)
        dirty, self._record.open = not self._record.open, True
        for attempt in range(_ROUNDS):
            if pulls:
                dirty |= await self._pull(self._record)
            if not pushes or (settled and self._away):
                break
            again, changed = await self._push(
                self._record, settled=settled, final=attempt == _ROUNDS - 1
            )
            dirty |= changed
            if not again:
                break
            pulls = True
        if dirty:
            await asyncio.to_thread(records.write, self._volume.root, self._record)

    def _open(self) -> Record:
        """What is known of the volume. What is there of other stores than these goes."""
        record = records.read(self._volume.root)
        for mounted in self._stores:
            state = record.stores.get(mounted.directory)
            there = (self._volume.root / "memory" / mounted.directory).is_dir()
            if state is not None and state.store_id == mounted.memory_store_id and there:
                continue
            if state is not None and there:
                with placing(self._volume, mounted.directory) as place:
                    place.clear()
            make(self._volume.root / "memory", mounted.directory, self._volume.owner)
            record.stores[mounted.directory] = StoreState(mounted.memory_store_id)
        wanted = {mounted.directory for mounted in self._stores}
        for slug in record.stores.keys() - wanted:
            del record.stores[slug]
        record.workspace_id = self._workspace_id
        record.read_only = [one.directory for one in self._stores if one.read_only]
        record.open = False
        if not records.exists(self._volume.root):
            records.write(self._volume.root, record, is_first=True)
        return record

    async def _pull(self, record: Record) -> bool:
        """Brings what is new; whether anything was."""
        news, asked = False, list(self._stores)
        while asked := [one for one in asked if not record.stores[one.directory].gone]:
            states = [record.stores[one.directory] for one in asked]
            if self._resting():
                return news
            try:
                found = await self._memories.follow(
                    [(state.store_id, state.revision) for state in states]
                )
            except DroverError as error:
                self._failed(error)
                return news
            self._away = False
            more = []
            for mounted, state, changes in zip(asked, states, found, strict=True):
                if changes.revision < state.revision:  # its database is an older one
                    state.begin_anew(forgets=not mounted.read_only)
                if not is_news(state, changes):
                    state.revision = changes.revision
                else:
                    news = True
                    notices = await asyncio.to_thread(
                        pull,
                        self._volume,
                        mounted.directory,
                        state,
                        changes,
                        read_only=mounted.read_only,
                    )
                    self._notices.add(*notices)
                if changes.more and state.revision == changes.revision:
                    more.append(mounted)
            asked = more
        return news

    async def _push(self, record: Record, *, settled: bool, final: bool) -> tuple[bool, bool]:
        """Stores what is new: whether the stores are to be asked first, and whether there was any
        of it.
        """
        writable = [one.directory for one in self._stores if not one.read_only]
        looked = await asyncio.to_thread(self._look, record, writable, settled)
        changed = any(one.changed for one in looked)
        for one in looked:
            self._notices.add(*one.notices)
        if not any(one.steps for one in looked):
            self._pending = settled
            if not settled:
                self._catch_up()
            return False, changed
        return await self._tell(record, writable, looked, final=final), True

    def _look(self, record: Record, writable: Sequence[str], settled: bool) -> list[Looked]:
        return [
            looking.look(self._volume, slug, record.stores[slug], settled=settled)
            for slug in writable
        ]

    async def _tell(
        self, record: Record, writable: Sequence[str], looked: Sequence[Looked], *, final: bool
    ) -> bool:
        self._pending = True
        for slug, one in zip(writable, looked, strict=True):
            record.stores[slug].sent |= one.sent
        await asyncio.to_thread(records.write, self._volume.root, record)
        until = 0.0
        if not self._resting():
            until = asyncio.get_running_loop().time() + _PUSH_SECONDS
        overtaken, waiting = False, []
        for slug, one in zip(writable, looked, strict=True):
            state, place = record.stores[slug], f"/mnt/memory/{slug}"
            text_of = partial(looking.text_of, self._volume, slug)
            pushing = Pushing(
                self._memories, state, self._session_id, place, text_of=text_of, final=final
            )
            pushed = await pushing.push(one.steps, until)
            self._notices.add(*pushed.notices)
            overtaken |= pushed.overtaken
            if pushed.late:
                self._rest()
            if pushed.waiting:
                until = 0.0
            waiting += [
                f"{place}{path}"
                for path in pushed.waiting
                if state.tell_once(path, "waiting", one.sent.get(path))
            ]
        if waiting:
            self._waited = True
            self._notices.add(words.waiting(waiting))
        if until:
            self._pending = overtaken
            if not overtaken:
                self._catch_up()
        return overtaken

    def _catch_up(self) -> None:
        if self._waited:
            self._waited = False
            self._notices.add(words.caught_up())

    def _failed(self, error: DroverError) -> None:
        if error.reason is Reason.DEADLINE_EXCEEDED:
            self._rest()
        if not self._away:
            self._away = True
            _log.info("memory_away", session_id=self._session_id, reason=error.reason)
            self._notices.add(words.unread())

    def _rest(self) -> None:
        self._rest_until = asyncio.get_running_loop().time() + _REST_SECONDS

    def _resting(self) -> bool:
        return asyncio.get_running_loop().time() < self._rest_until
