"""The live hands: one per session, made on demand, reaped when idle, bounded in number.

A spare sandbox is kept ready with a workspace of its own; a session that has no workspace yet gets
both, and its first call waits for no start. A sandbox never serves two sessions.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from services.hands.backends.port import BackendUnavailable, SandboxSpec
from services.hands.domain.recipe import DEFAULT
from services.hands.hand import Hand, Lost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.hands.backends.port import Backend, Volume
    from services.hands.domain.limits import Limits
    from services.hands.domain.recipe import Recipe
    from services.hands.workspace import Workspaces

_RETRY_AFTER: Final = 1.0
# The session that took the spare is to run its first call before another start takes the processor.
_REFILL_DELAY: Final = 0.1

_log = structlog.get_logger("hands.pool")


@dataclass(frozen=True, slots=True)
class PoolSize:
    """How many sandboxes live, and for how long. Times are in seconds.

    `starts_at_once`: starting one keeps a processor busy, so that more at once only make each
    other wait. `grace_seconds`: how much longer than its deadline a call may take before its
    sandbox is killed.
    """

    max_live: int = 128
    idle_seconds: float = 600.0
    spares: int = 1
    starts_at_once: int = 4
    grace_seconds: float = 0.8


@dataclass(slots=True, eq=False)
class _Seat:
    """A session's place: its hand, once it is there."""

    hand: asyncio.Future[Hand]
    used_at: float
    users: int = 0

    @property
    def usable(self) -> bool:
        """Whether the hand is there or on its way."""
        if not self.hand.done():
            return True
        return self.hand.exception() is None and not self.hand.result().dead.is_set()

    @property
    def idle(self) -> bool:
        """Whether the hand is there and nobody uses it."""
        return self.users == 0 and self.hand.done()


class Pool:
    """Gives sessions their hands."""

    def __init__(
        self,
        backend: Backend,
        workspaces: Workspaces,
        tasks: asyncio.TaskGroup,
        *,
        limits: Limits,
        size: PoolSize,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._backend = backend
        self._workspaces = workspaces
        self._limits = limits
        self._size = size
        self._clock = clock
        self._ids = ids
        self._tasks = tasks
        self._seats: dict[str, _Seat] = {}
        self._spares: list[tuple[Hand, Volume]] = []
        self._filling = False
        self._closed = False
        self._starting = asyncio.Semaphore(size.starts_at_once)

    def has(self, session_id: str) -> bool:
        """Whether a session's hand is ready."""
        seat = self._seats.get(session_id)
        return seat is not None and seat.hand.done() and seat.usable

    def live(self) -> dict[str, Hand]:
        """The sessions' hands that are there."""
        return {
            session_id: seat.hand.result()
            for session_id, seat in self._seats.items()
            if seat.hand.done() and seat.usable
        }

    @property
    def ready_spares(self) -> int:
        """How many sandboxes wait for a session."""
        return sum(not hand.dead.is_set() for hand, _ in self._spares)

    @asynccontextmanager
    async def use(self, session_id: str, recipe: Recipe = DEFAULT) -> AsyncIterator[Hand]:
        """A session's hand, made by `recipe` if it has none, kept while the body runs.

        Users that come together share one start, which goes on when one of them is cancelled.
        Raises `BackendUnavailable`, and RESOURCE_EXHAUSTED when too many sandboxes are busy.
        """
        seat = self._seats.get(session_id)
        if seat is None or not seat.usable:
            seat = self._seat(session_id, recipe)
        seat.users += 1
        try:
            yield await asyncio.shield(seat.hand)
        finally:
            seat.users -= 1
            seat.used_at = self._clock.monotonic()

    async def prepare(self, session_id: str, recipe: Recipe = DEFAULT) -> None:
        """Makes a session's hand if it has none. Raises as `use` does."""
        async with self.use(session_id, recipe):
            pass

    async def release(self, session_id: str) -> None:
        """Ends a session's hand, whatever it does. No process of it is left afterwards."""
        seat = self._seats.pop(session_id, None)
        if seat is not None:
            await self._end(seat, "the session let go of it")

    async def reap(self) -> None:
        """Ends the hands that have been idle for too long."""
        since = self._clock.monotonic() - self._size.idle_seconds
        for session_id, seat in list(self._seats.items()):
            if not seat.usable or (seat.idle and seat.used_at <= since):
                del self._seats[session_id]
                await self._end(seat, "it was idle")
        self._spares = [spare for spare in self._spares if not spare[0].dead.is_set()]
        self.fill()

    def fill(self) -> None:
        """Sees to it that there are spares, soon."""
        if not self._filling and self._wants_spare():
            self._filling = True
            self._tasks.create_task(self._fill(), name="spares")

    async def close(self) -> None:
        """Ends every hand."""
        self._closed = True
        seats, self._seats = list(self._seats.values()), {}
        spares, self._spares = self._spares, []
        async with asyncio.TaskGroup() as ends:
            for seat in seats:
                ends.create_task(self._end(seat, "the service stops"))
            for hand, _ in spares:
                ends.create_task(hand.kill("the service stops"))

    def _seat(self, session_id: str, recipe: Recipe) -> _Seat:
        """A new seat, whose hand is being started. Does not wait, so that callers cannot race."""
        if self._closed:
            raise DroverError(Reason.UNAVAILABLE, "the service stops", retry_after=_RETRY_AFTER)
        dead = self._seats.pop(session_id, None)
        evicted = self._evict()
        if evicted is not None:
            end = self._end(evicted, "another session needed its place")
            self._tasks.create_task(end, name="evict")
        hand: asyncio.Future[Hand] = asyncio.get_running_loop().create_future()
        hand.add_done_callback(lambda done: done.cancelled() or done.exception())
        seat = self._seats[session_id] = _Seat(hand, self._clock.monotonic())
        start = _settle(hand, self._start(session_id, recipe, dead))
        self._tasks.create_task(start, name=f"start {session_id}")
        return seat

    def _evict(self) -> _Seat | None:
        """The seat that has been idle longest, if there must be room for another."""
        if sum(seat.usable for seat in self._seats.values()) < self._size.max_live:
            return None
        idle = [(seat.used_at, name) for name, seat in self._seats.items() if seat.idle]
        if not idle:
            raise DroverError(
                Reason.RESOURCE_EXHAUSTED,
                f"all {self._size.max_live} sandboxes are busy",
                retry_after=_RETRY_AFTER,
            )
        return self._seats.pop(min(idle)[1])

    async def _start(self, session_id: str, recipe: Recipe, dead: _Seat | None) -> Hand:
        if dead is not None:
            await self._end(dead, "it is to be replaced")
        volume = self._workspaces.find(session_id)
        while volume is None and self._spares and self._is_default(recipe):
            hand, spare = self._spares.pop()
            self.fill()
            if not hand.dead.is_set():
                self._workspaces.adopt(session_id, spare)
                _log.info("hand_assigned", session_id=session_id, hand_id=hand.id)
                return hand
            await self._workspaces.remove(spare)
        if volume is None:
            hand = await self._launch(await self._workspaces.make(session_id), recipe)
        else:
            hand = await self._launch(volume, recipe)
            hand.lost = Lost.SANDBOX
        _log.info("hand_started", session_id=session_id, hand_id=hand.id)
        self.fill()
        return hand

    async def _launch(self, volume: Volume, recipe: Recipe = DEFAULT) -> Hand:
        hand_id = self._ids("hand")
        spec = SandboxSpec(hand_id, volume, self._limits, recipe.kind, recipe.image)
        async with self._starting:
            sandbox = await self._backend.launch(spec)
            hand = Hand(hand_id, sandbox, grace=self._size.grace_seconds)
            hand.backend = recipe.kind or self._backend.name
            await hand.open(self._tasks)
        return hand

    async def _fill(self) -> None:
        try:
            await asyncio.sleep(_REFILL_DELAY)
            while self._wants_spare():
                volume = await self._workspaces.make_spare(self._ids("spare"))
                hand = await self._launch(volume)
                self._spares.append((hand, volume))  # looked up now: the list may be another one
            if self._closed:
                await self.close()
        except (BackendUnavailable, OSError) as error:
            _log.warning("no_spare", reason=str(error))
        except Exception:  # noqa: BLE001  # spares are a convenience
            _log.exception("spare_failed")
        finally:
            self._filling = False

    def _is_default(self, recipe: Recipe) -> bool:
        """Whether a spare sandbox is what the recipe makes."""
        return recipe.kind in {"", self._backend.name} and not recipe.image

    def _wants_spare(self) -> bool:
        return not self._closed and len(self._spares) < self._size.spares

    async def _end(self, seat: _Seat, why: str) -> None:
        await asyncio.wait([seat.hand])
        if seat.hand.exception() is None:
            await seat.hand.result().kill(why)


async def _settle(future: asyncio.Future[Hand], start: Coroutine[None, None, Hand]) -> None:
    """Hands on what comes of `start`; its failure is the waiters' matter."""
    try:
        hand = await start
    except OSError as error:
        text = f"a workspace could not be made: {error.strerror or error}"
        future.set_exception(BackendUnavailable(text))
    except (BackendUnavailable, DroverError) as error:
        future.set_exception(error)
    except Exception as error:  # noqa: BLE001  # whatever it is, the other sessions go on
        _log.exception("start_failed")
        future.set_exception(error)
    except BaseException:
        future.cancel()
        raise
    else:
        future.set_result(hand)
