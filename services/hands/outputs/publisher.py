"""When what sessions leave is published: soon after calls, and before a hand goes.

It is a `Lifecycle` of the hands: whatever becomes of them, their workspaces are looked at from
outside. Nothing of it is on the path of a call.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError
from services.hands.domain.address import is_of, session_of
from services.hands.outputs.record import Record

if TYPE_CHECKING:
    from services.hands.outputs.publication import Publication
    from services.hands.workspace import Workspaces

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_LOGGED: Final = 10

_log = structlog.get_logger("hands.outputs")


@dataclass(frozen=True, slots=True)
class Pace:
    """When outputs are published, in seconds: `quiet` after a call, and how long a hand that goes
    and a service that stops wait for it. Whoever releases a hand waits for 30 s at most.
    """

    quiet: float = 0.5
    last: float = 20.0
    stop: float = 5.0


@dataclass(slots=True)
class _Watch:
    """What is known of one hand's outputs. `untold`: what its next call is to be told.

    `attempts` are rounds, one after another, that have left something to be tried again.
    `has_ended`: nothing need be known once all is published.
    """

    record: Record | None = None
    due_at: float = 0.0
    timer: asyncio.TimerHandle | None = None
    running: asyncio.Task[bool] | None = None
    attempts: int = 0
    untold: dict[str, str] = field(default_factory=dict)
    has_ended: bool = False


class Publisher:
    """The outputs of a pool's hands. `tasks` owns the work."""

    def __init__(
        self,
        publication: Publication,
        workspaces: Workspaces,
        tasks: asyncio.TaskGroup,
        *,
        pace: Pace | None = None,
    ) -> None:
        self._publication = publication
        self._workspaces = workspaces
        self._tasks = tasks
        self._pace = pace or Pace()
        self._used: set[str] = set()
        self._watches: dict[str, _Watch] = {}
        self._closed = False

    async def start(self) -> None:
        """Has what dead processes did not get to published."""
        for where in await asyncio.to_thread(self._workspaces.everywhere):
            self._plan(where, self._pace.quiet).has_ended = True

    # the lifecycle of hands

    async def before_start(self, where: str) -> None:
        """Nothing is put in its place."""

    def used(self, where: str) -> None:
        """It is looked at when nobody uses it any more."""
        self._used.add(where)

    def rested(self, where: str) -> None:
        """It is looked at soon."""
        self._used.discard(where)
        self._plan(where, self._pace.quiet).has_ended = False

    def ended(self, where: str) -> None:
        """It is looked at now: something may have been written since the last call."""
        if where not in self._used:
            self._plan(where, 0.0).has_ended = True

    async def leaves(self, where: str) -> None:
        """What is not published yet is, as far as there is time for it."""
        await self.publish(where)

    async def holds(self, where: str) -> bool:  # noqa: ARG002  # workspaces are elsewhere
        """No workspace is here."""
        return False

    async def moved(self, where: str, to: str) -> None:
        """The record goes with the volume."""
        await self._stop(where)
        self._used.discard(where)
        self._plan(to, self._pace.quiet)

    async def purged(self, session_id: str, hand: str | None) -> None:
        """Nobody is interested any more."""
        for where in [*self._watches]:
            if is_of(where, session_id, hand):
                await self._stop(where)

    @property
    def waiting(self) -> int:
        """How many hands have something that could not be published, and is tried again."""
        return sum(watch.attempts > 0 for watch in [*self._watches.values()])

    # what calls are told

    def has_news(self, where: str) -> bool:
        """Whether a call is to be told why something is not published."""
        watch = self._watches.get(where)
        return watch is not None and bool(watch.untold)

    def take_news(self, where: str) -> dict[str, str]:
        """Why what is not published, by path: what was not told yet."""
        watch = self._watches.get(where)
        if watch is None:
            return {}
        untold, watch.untold = watch.untold, {}
        return untold

    def give_back(self, where: str, untold: dict[str, str]) -> None:
        """What was to be told, and was not, is told another time."""
        self._watches.setdefault(where, _Watch()).untold |= untold

    # publishing

    async def publish(self, where: str) -> None:
        """Publishes what has changed, as far as there is time for it. Raises nothing."""
        done = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.last):
                # Looked up each time: it is forgotten when it has done all.
                while (watch := self._watch(where)).running is not None:
                    await asyncio.wait([watch.running])
                done = await asyncio.shield(self._begin(where, watch))
        if not done:
            _log.warning("outputs_wait", session_id=session_of(where))

    async def close(self) -> None:
        """Publishes what is still to be published, as far as there is time for it."""
        self._closed = True
        running = {watch.running for watch in self._watches.values() if watch.running is not None}
        running |= {
            self._begin(where, watch)
            for where, watch in self._watches.items()
            if watch.timer is not None and watch.running is None
        }
        if not running:
            return
        _, left = await asyncio.wait(running, timeout=self._pace.stop)
        for task in left:
            task.cancel()
        if left:
            _log.warning("outputs_left_to_the_next_start", hands=len(left))
            await asyncio.wait(left)

    def _watch(self, where: str) -> _Watch:
        return self._watches.setdefault(where, _Watch(has_ended=True))

    def _plan(self, where: str, seconds: float) -> _Watch:
        """Has it looked at then. Returns at once: it is on the path of every call."""
        watch = self._watches.get(where)
        if watch is None:
            watch = self._watches[where] = _Watch()
        loop = asyncio.get_running_loop()
        watch.due_at = loop.time() + seconds
        timer = watch.timer
        if timer is not None and watch.due_at < timer.when():
            timer.cancel()
            timer = None
        if timer is None and not self._closed:  # else it is early, and is set anew then
            watch.timer = loop.call_at(watch.due_at, self._due, where, watch)
        return watch

    def _due(self, where: str, watch: _Watch) -> None:
        watch.timer = None
        if where in self._used or self._watches.get(where) is not watch:
            return  # it is planned when nobody uses it any more
        loop = asyncio.get_running_loop()
        if watch.due_at > loop.time():
            watch.timer = loop.call_at(watch.due_at, self._due, where, watch)
        elif watch.running is None:
            self._begin(where, watch)
        else:
            self._plan(where, self._pace.quiet)

    def _begin(self, where: str, watch: _Watch) -> asyncio.Task[bool]:
        if watch.timer is not None:
            watch.timer.cancel()
            watch.timer = None
        work = self._work(where, watch)
        watch.running = self._tasks.create_task(work, name=f"outputs {where}")
        return watch.running

    async def _work(self, where: str, watch: _Watch) -> bool:
        """Publishes once, and plans what is left; whether nothing is. Raises nothing."""
        done = True
        news: dict[str, str] = {}
        root = self._workspaces.place_of(where)
        try:
            if watch.record is None:
                watch.record = await asyncio.to_thread(Record.read, root)
            done = await self._publication.publish(where, root, watch.record, news)
        except FileNotFoundError:  # the volume is gone, or is not there yet
            watch.record = None
        except (DroverError, OSError) as error:
            done = False
            again = _pause(watch.attempts)
            about = {"session_id": session_of(where), "again_after_seconds": again}
            _log.warning("outputs_not_published", reason=str(error), **about)
        except Exception:  # noqa: BLE001  # whatever it is, the other hands go on
            _log.exception("outputs_broken", session_id=session_of(where))
        finally:
            watch.running = None
            self._note(where, watch, news)
        if done:
            watch.attempts = 0
        elif watch.timer is None and self._watches.get(where) is watch:
            self._plan(where, _pause(watch.attempts))
            watch.attempts += 1
        if watch.has_ended and watch.timer is None and not watch.untold:
            self._forget(where, watch)
        return done

    def _note(self, where: str, watch: _Watch, news: dict[str, str]) -> None:
        """Has what is refused told once: in the log, and to the next call."""
        watch.untold |= news
        for path, why in [*news.items()][:_LOGGED]:
            about = {"session_id": session_of(where), "path": path, "reason": why}
            _log.warning("output_refused", count=len(news), **about)

    def _forget(self, where: str, watch: _Watch | None) -> None:
        if watch is None or self._watches.get(where) is not watch:
            return
        del self._watches[where]
        if watch.timer is not None:
            watch.timer.cancel()

    async def _stop(self, where: str) -> None:
        """Ends what is being done for a hand, and waits for that."""
        watch = self._watches.get(where)
        self._forget(where, watch)
        if watch is not None and watch.running is not None:
            running = watch.running
            running.cancel()
            await asyncio.wait([running])


def _pause(attempts: int) -> float:
    """Until what is left is tried again, in seconds. A file that never rests is left, too."""
    return min(_FIRST_PAUSE * 2.0 ** min(attempts, 10), _LONGEST_PAUSE)
