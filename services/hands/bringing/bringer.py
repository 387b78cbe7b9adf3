"""Brings things of one kind into hands: what is asked for and not there, and no more than that."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import structlog

from drover.event.v1 import session_event_pb2 as pb
from services.hands.bringing import beneath
from services.hands.bringing.ledger import Ledger
from services.hands.domain.address import session_of
from services.hands.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from chassis.clock import Clock
    from services.hands.domain.mounts import Mounts
    from services.hands.hand import Hand
    from services.hands.pool import Pool
    from services.hands.workspace import Workspaces

WAIT_SECONDS: Final = 45.0
"""How long the first calls, and whoever has a hand made ready, wait for what goes on behind them:
less than a brain gives either."""
_LOOK_AGAIN_SECONDS: Final = 5.0
_WAIT_AGAIN_SECONDS: Final = 2.0
"""How long each call waits for what was away before: it may not answer at all."""
_AT_ONCE: Final = 4
_TOLD: Final = 10
"""Things that are named, of many that are missing."""

T = TypeVar("T")

_log = structlog.get_logger("hands.bringing")


class NotBrought(Exception):  # noqa: N818  # something that happens
    """It could not be brought; the text says why. `away`: it may be there soon."""

    def __init__(self, why: str, *, away: bool) -> None:
        super().__init__(why)
        self.away = away


@dataclass(frozen=True, slots=True)
class Errand:
    """For whom something is brought: into which volume, and under which name until it is whole."""

    session_id: str
    workspace_id: str
    root: Path
    unfinished: str


class Kind(Protocol[T]):
    """Things of one kind. `part` is the volume's directory that they lie in."""

    part: str

    def items(self, mounts: Mounts) -> tuple[T, ...]:
        """Those that are asked for; equal ones are of the same content."""
        ...

    def path(self, item: T) -> str:
        """Where one lies below the directory."""
        ...

    def key(self, item: T) -> str:
        """What one is made of."""
        ...

    def about(self, item: T) -> str:
        """What people are told that it is, and where."""
        ...

    async def bring(self, item: T, errand: Errand) -> None:
        """Makes one whole, beside the volume's directories. Raises `NotBrought`."""
        ...


@dataclass(slots=True)
class _State(Generic[T]):
    """What is known of one hand. `there` is what is in the volume, once that was looked at;
    `settled` what was asked for when all of it was there, `tried` when not all was; `was_away`:
    something was not to be had then, and may be at `look_at`.
    """

    session_id: str
    there: dict[str, str] | None = None
    settled: tuple[T, ...] | None = None
    tried: tuple[T, ...] | None = None
    look_at: float = 0.0
    was_away: bool = False
    under_way: asyncio.Task[None] | None = None


class Bringer(Generic[T]):
    """A `Piece` of a pool's hands. `tasks` owns what goes on when nobody waits any longer."""

    def __init__(
        self,
        kind: Kind[T],
        pool: Pool,
        workspaces: Workspaces,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        *,
        wait_seconds: float = WAIT_SECONDS,
        traffic: Traffic | None = None,
    ) -> None:
        self._kind = kind
        self._pool = pool
        self._workspaces = workspaces
        self._tasks = tasks
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._traffic = traffic or Traffic()
        self._ledger = Ledger(kind.part)
        self._numbers = itertools.count()
        self._works: Counter[str] = Counter()
        self._running: set[asyncio.Task[None]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._states: WeakKeyDictionary[Hand, _State[T]] = WeakKeyDictionary()

    def settled(self, where: str, hand: Hand, mounts: Mounts) -> bool:
        """Whether `ready` has nothing to do."""
        items, state = self._kind.items(mounts), self._states.get(hand)
        if state is None:
            return hand.is_fresh and not items
        return state.settled == items and state.session_id == session_of(where)

    async def ready(self, where: str, hand: Hand, mounts: Mounts, *, again: bool) -> None:
        """Waits until what is missing was brought, or has failed; not for ever, as that goes on.

        `Hand.problems` tells of what has failed, which is tried once more with `again`. Raises
        nothing.
        """
        items = self._kind.items(mounts)
        state = self._of(where, hand)
        until = self._clock.monotonic() + self._wait_seconds
        if state.was_away and state.tried == items and not again:
            until = self._clock.monotonic() + _WAIT_AGAIN_SECONDS
        while state.settled != items:
            if state.under_way is None:
                rests = state.tried == items and self._clock.monotonic() < state.look_at
                if rests and not again:
                    return
                again = False
                work = self._work(where, hand, state, mounts)
                name = f"bring {self._kind.part} {where}"
                state.under_way = self._tasks.create_task(work, name=name)
                self._running.add(state.under_way)
                state.under_way.add_done_callback(self._running.discard)
            left = until - self._clock.monotonic()
            await asyncio.wait((state.under_way,), timeout=max(0.0, left))
            if state.under_way is not None:
                hand.tell(self._kind.part, [_error(f"{self._kind.part} are still on their way")])
                return

    def busy(self, where: str) -> bool:
        """Whether anything is being brought into the hand at an address."""
        return bool(self._works[where])

    async def close(self) -> None:
        """Ends what is under way; the next process begins it anew."""
        running = [*self._running]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _of(self, where: str, hand: Hand) -> _State[T]:
        state, session_id = self._states.get(hand), session_of(where)
        if state is None or state.session_id != session_id:  # it was handed on
            state = self._states[hand] = _State(session_id, {} if hand.is_fresh else None)
            hand.tell(self._kind.part, ())
        return state

    async def _work(self, where: str, hand: Hand, state: _State[T], mounts: Mounts) -> None:
        items = self._kind.items(mounts)
        state.settled, state.tried, state.look_at = None, items, float("inf")
        self._works[where] += 1
        lock = self._locks.setdefault(where, asyncio.Lock())
        try:
            # Kept while it lasts, whoever has stopped waiting for it.
            with self._pool.keep(where, hand) as there:
                if there:
                    async with lock:
                        errors = await self._bring(where, state, mounts)
                    hand.tell(self._kind.part, errors)
                    if not errors:
                        state.settled, state.was_away = items, False
        except OSError as error:
            why = error.strerror or str(error)
            hand.tell(self._kind.part, [_error(f"{self._kind.part} could not be looked at: {why}")])
            _log.warning(
                "not_looked_at", part=self._kind.part, session_id=state.session_id, why=why
            )
        except Exception:  # noqa: BLE001  # whatever it is, the other hands go on
            hand.tell(self._kind.part, [_error(f"{self._kind.part} could not be brought in")])
            _log.exception("not_brought", part=self._kind.part, session_id=state.session_id)
        finally:
            state.under_way = None
            self._works -= Counter((where,))  # a hand that took its place may have its own

    async def _bring(self, where: str, state: _State[T], mounts: Mounts) -> list[pb.SessionError]:
        """Brings and takes away; what is missing then. Raises `OSError`."""
        kind, root = self._kind, self._workspaces.place_of(where)
        items = kind.items(mounts)
        there = state.there
        if there is None:
            there = await asyncio.to_thread(self._look, root)
        wanted = {kind.path(item): kind.key(item) for item in items}
        new = [item for item in items if there.get(kind.path(item)) != kind.key(item)]
        gone = [path for path, key in there.items() if wanted.get(path) != key]
        if new or gone:
            # Until it is noted what is there, each of these may be.
            pending = there | dict.fromkeys([*gone, *map(kind.path, new)], "")
            await asyncio.to_thread(self._change, root, pending, gone)
            there = {path: key for path, key in there.items() if path not in gone}
        room = asyncio.Semaphore(_AT_ONCE)
        errors: list[pb.SessionError] = []

        async def one(item: T) -> None:
            async with room:
                try:
                    await self._one(item, state.session_id, mounts.workspace_id, root)
                except NotBrought as failure:
                    errors.append(_error(f"{kind.about(item)} is missing: {failure}"))
                    if failure.away:
                        state.was_away = True
                        state.look_at = self._clock.monotonic() + _LOOK_AGAIN_SECONDS
                else:
                    there[kind.path(item)] = kind.key(item)

        async with asyncio.TaskGroup() as tasks:
            for item in new:
                tasks.create_task(one(item))
        if new or gone:
            missing = dict.fromkeys((kind.path(item) for item in new), "")
            await asyncio.to_thread(self._note, root, missing | there)
        state.there = there
        if len(errors) > _TOLD:
            more = f"{len(errors) - _TOLD} more {kind.part} are missing; the first ones are named"
            errors[_TOLD:] = [_error(more)]
        return errors

    async def _one(self, item: T, session_id: str, workspace_id: str, root: Path) -> None:
        kind, began = self._kind, self._clock.monotonic()
        about = {"part": kind.part, "session_id": session_id, "path": kind.path(item)}
        unfinished = beneath.unfinished(kind.part, str(next(self._numbers)))
        errand = Errand(session_id, workspace_id, root, unfinished)
        try:
            try:
                await kind.bring(item, errand)
                await asyncio.to_thread(_put, errand, kind.part, kind.path(item))
            except OSError as error:
                raise NotBrought(_words(error), away=False) from error
        except NotBrought as failure:
            self._traffic.brought(kind.part, "away" if failure.away else "missing", 0.0)
            _log.warning("not_brought", reason=str(failure), **about)
            raise
        finally:
            await asyncio.to_thread(_drop, errand)
        took = self._clock.monotonic() - began
        self._traffic.brought(kind.part, "brought", took)
        _log.info("brought", seconds=round(took, 3), **about)

    def _look(self, root: Path) -> dict[str, str]:
        with beneath.opened(root) as volume:
            return self._ledger.look(volume)

    def _change(self, root: Path, pending: Mapping[str, str], gone: Iterable[str]) -> None:
        with beneath.opened(root) as volume:
            self._ledger.write(volume, pending)
            with beneath.opened(self._kind.part, at=volume) as part:
                for path in gone:
                    beneath.take_away(part, path)

    def _note(self, root: Path, there: Mapping[str, str]) -> None:
        with beneath.opened(root) as volume:
            self._ledger.write(volume, there)


def _put(errand: Errand, part: str, path: str) -> None:
    with beneath.opened(errand.root) as volume:
        beneath.put(volume, errand.unfinished, part, path)


def _drop(errand: Errand) -> None:
    """Leaves nothing half there. What cannot be deleted now is dropped at the next look."""
    try:
        with beneath.opened(errand.root) as volume:
            beneath.remove(volume, errand.unfinished)
    except OSError:
        return


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def _error(message: str) -> pb.SessionError:
    """What people are told. The session goes on without, and it is tried again (EVENTS §9)."""
    error = pb.SessionError(
        message=message, retry_status=pb.RetryStatus(type=pb.RETRY_STATUS_TYPE_RETRYING)
    )
    error.unknown_error.SetInParent()
    return error
