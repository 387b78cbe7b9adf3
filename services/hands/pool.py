"""The live hands: made on demand, reaped when idle, replaced when old, bounded in number.

A hand is found by its address (`domain.address`). Where spares are kept for the session's recipe, a
session that has no workspace yet gets a spare sandbox with its workspace, and its first call waits
for no start. A sandbox never serves two sessions, unless it is handed on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from services.hands.backends.port import BackendUnavailable
from services.hands.domain import mounts as domain
from services.hands.domain.address import session_of
from services.hands.domain.recipe import DEFAULT, Standard
from services.hands.hand import Hand, Lost
from services.hands.lifecycle import Lifecycle, Unobserved
from services.hands.packages.installed import Installed, installed
from services.hands.repositories.mounts import Mounts
from services.hands.seats import Seat, Starter
from services.hands.spares import Spares

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.hands.backends.port import Backend
    from services.hands.bringing.port import Attendant, Piece
    from services.hands.domain.limits import Limits
    from services.hands.domain.recipe import Recipe
    from services.hands.egress.network import Network
    from services.hands.packages.builder import Terms
    from services.hands.workspace import Workspaces

_RETRY_AFTER: Final = 1.0
_DAY: Final = 24 * 3600.0

_log = structlog.get_logger("hands.pool")


@dataclass(frozen=True, slots=True)
class PoolSize:
    """How many sandboxes live, and for how long. Times are in seconds.

    `max_age_seconds`: an older one is replaced as soon as nobody uses it (SEMANTICS §7).
    `spares`: how many are kept of the default recipe. `starts_at_once`: starting one keeps a
    processor busy, so that more at once only make each other wait. `grace_seconds`: how much longer
    than its deadline a call may take before its sandbox is killed. `clone_seconds`: how long one
    repository may take to clone.
    """

    max_live: int = 128
    idle_seconds: float = 600.0
    max_age_seconds: float = 30 * _DAY
    spares: int = 1
    starts_at_once: int = 4
    grace_seconds: float = 0.8
    clone_seconds: float = 900.0


class Pool:
    """Gives sessions their hands."""

    def __init__(
        self,
        backend: Backend,
        workspaces: Workspaces,
        tasks: asyncio.TaskGroup,
        *,
        size: PoolSize,
        clock: Clock,
        ids: IdSource,
        limits: Limits | None = None,
        standard: Standard | None = None,
        pools: Mapping[Recipe, int] | None = None,
        lifecycle: Lifecycle | None = None,
        network: Network | None = None,
        packages: Terms | None = None,
    ) -> None:
        """`standard` or `limits` say what is made by default; `pools` how many spares by recipe.

        Without a `network` no sandbox has a way out. `packages` says where those are installed.
        """
        self._workspaces = workspaces
        self._size = size
        self._clock = clock
        self._tasks = tasks
        self._lifecycle = lifecycle or Unobserved()
        self._network = network
        if standard is None:
            standard = Standard(backend.name) if limits is None else Standard(backend.name, limits)
        self._standard = standard
        at_once = size.starts_at_once
        self._starter = Starter(
            backend,
            tasks,
            clock=clock,
            ids=ids,
            at_once=at_once,
            grace=size.grace_seconds,
            network=network,
        )
        wanted = {standard.blueprint(DEFAULT): size.spares}
        for recipe, count in (pools or {}).items():
            blueprint = standard.blueprint(recipe)
            wanted[blueprint] = wanted.get(blueprint, 0) + count
        self.spares = Spares(
            self._starter,
            workspaces,
            tasks,
            wanted=wanted,
            at_once=max(1, at_once // 2),
            max_age=size.max_age_seconds,
            clock=clock,
            ids=ids,
        )
        grants = None if network is None else network.grants
        self.mounts = Mounts(self, tasks, clock, grants, seconds=size.clone_seconds)
        self.packages: Installed | None = None
        if packages is not None:
            self.packages = self._starter.packages = installed(
                packages, workspaces, self._starter, standard, tasks=tasks, clock=clock, ids=ids
            )
        self.pieces: list[Piece] = []
        self.attendants: list[Attendant] = []
        self._seats: dict[str, Seat] = {}
        self._leaving: defaultdict[str, list[Seat]] = defaultdict(list)
        self._closed = False

    def has(self, where: str) -> bool:
        """Whether the hand at an address is ready."""
        seat = self._seats.get(where)
        return seat is not None and seat.ready

    def starts(self, where: str) -> bool:
        """Whether a hand is on its way there: that goes on when all who asked for it are gone."""
        seat = self._seats.get(where)
        return seat is not None and not seat.hand.done()

    def live(self) -> dict[str, Hand]:
        """The sessions' hands that are there, by their addresses."""
        return {where: seat.hand.result() for where, seat in self._seats.items() if seat.ready}

    def hands(self) -> tuple[Hand, ...]:
        """The sessions' hands that are there. For any thread."""
        return tuple(seat.hand.result() for seat in list(self._seats.values()) if seat.ready)

    def addresses(self, session_id: str) -> tuple[str, ...]:
        """Where a session's hands are, or are on their way to."""
        return tuple(where for where in self._seats if session_of(where) == session_id)

    @asynccontextmanager
    async def use(self, where: str, recipe: Recipe = DEFAULT) -> AsyncIterator[Hand]:
        """The hand at an address, made by `recipe` if there is none, kept while the body runs.

        Users that come together share one start, which goes on when one of them is cancelled.
        Raises `BackendUnavailable`, and RESOURCE_EXHAUSTED when too many sandboxes are busy.
        """
        seat = self._seats.get(where)
        if seat is None or not seat.usable or (seat.idle and self._aged(seat)):
            seat = self._seat(where, recipe)
        with self._used(where, seat):
            yield await asyncio.shield(seat.hand)

    @contextmanager
    def keep(self, where: str, hand: Hand) -> Iterator[bool]:
        """Keeps a hand while the body runs, if it is there still: whether it is."""
        seat = self._seats.get(where)
        if seat is None or not seat.ready or seat.hand.result() is not hand:
            yield False
            return
        with self._used(where, seat):
            yield True

    @contextmanager
    def _used(self, where: str, seat: Seat) -> Iterator[None]:
        seat.users += 1
        self._lifecycle.used(where)
        try:
            yield
        finally:
            seat.users -= 1
            seat.used_at = self._clock.monotonic()
            if not seat.users:
                self._lifecycle.rested(where)

    async def prepare(self, where: str, recipe: Recipe = DEFAULT) -> None:
        """Makes a hand if there is none. Raises as `use` does."""
        async with self.use(where, recipe):
            pass

    def furnished(self, where: str, hand: Hand, given: domain.Mounts = domain.NONE) -> bool:
        """Whether `furnish` has nothing to do."""
        packages = self.packages
        if not self.mounts.settled(where, hand):
            return False
        if packages is not None and not packages.settled(hand):
            return False
        return all(piece.settled(where, hand, given) for piece in self.pieces)

    async def furnish(
        self, where: str, hand: Hand, given: domain.Mounts = domain.NONE, *, again: bool = False
    ) -> None:
        """Waits until a hand has its session's packages and repositories and what else is `given`,
        or not; not for ever.

        `Hand.problems` tells of what failed, which is tried once more with `again`. Raises nothing.
        """
        waits = []
        if not self.mounts.settled(where, hand):
            waits.append(self.mounts.ready(where, hand, again=again))
        if self.packages is not None and hand.packages:
            waits.append(self.packages.ready(where, hand, again=again))
        waits += [
            piece.ready(where, hand, given, again=again)
            for piece in self.pieces
            if not piece.settled(where, hand, given)
        ]
        if waits:
            await asyncio.gather(*waits)

    def furnishing(self, where: str) -> bool:
        """Whether anything is being brought into the hand at an address."""
        return self.mounts.busy(where) or any(piece.busy(where) for piece in self.pieces)

    async def release(self, where: str) -> None:
        """Ends a hand, whatever it does. No process of it is left afterwards."""
        for seat in self._take_out(where):
            await self._end(where, seat, "the session let go of it")

    async def leave(self, addresses: Iterable[str]) -> None:
        """Tells that sessions are about to lose hands that nobody uses. Raises nothing."""
        async with asyncio.TaskGroup() as leaving:
            for where in addresses:
                leaving.create_task(self._lifecycle.leaves(where))

    async def move(self, where: str, to: str) -> None:
        """Has the hand at one address found at another, where there is none. Nobody may use it."""
        for leaving in tuple(self._leaving.get(where, ())):
            await self._end(where, leaving, "it was to be replaced")
        if (seat := self._seats.pop(where, None)) is not None:
            self._seats[to] = seat
            if seat.ready:
                hand = seat.hand.result()
                hand.is_fresh = False  # it has what its giver was given
                self._assign(hand, to)

    async def withdraw(self, session_id: str) -> None:
        """Ends what a session's hands were allowed of the network, all of which are released."""
        if self._network is not None:
            await self._network.grants.revoke(session_id)

    async def reap(self) -> None:
        """Ends the hands that have been idle for too long, or live too long and are idle."""
        since = self._clock.monotonic() - self._size.idle_seconds
        for where, seat in list(self._seats.items()):
            if self._seats.get(where) is not seat:
                continue  # it ended while another one was being ended
            aged = seat.idle and self._aged(seat)
            if aged or not seat.usable or (seat.idle and seat.used_at <= since):
                self._take_out(where)
                await self._end(where, seat, "it was too old" if aged else "it was idle")
        self.spares.sweep()
        if self.packages is not None:
            await self.packages.tend(self.live().values())

    def fill(self) -> None:
        """Sees to it that there are spares, soon."""
        self.spares.fill()

    async def close(self) -> None:
        """Ends every hand."""
        self._closed = True
        async with asyncio.TaskGroup() as ends:
            ends.create_task(self.spares.close())
            if self.packages is not None:
                ends.create_task(self.packages.close())
            for where in dict.fromkeys([*self._seats, *self._leaving]):
                for seat in self._take_out(where):
                    ends.create_task(self._end(where, seat, "the service stops"))

    def _aged(self, seat: Seat) -> bool:
        """Whether another one is to be started in its place: it is old, or has less than that."""
        if seat.older_than(self._clock.monotonic() - self._size.max_age_seconds):
            return True
        packages = self.packages
        return packages is not None and seat.ready and packages.outdated(seat.hand.result())

    def _seat(self, where: str, recipe: Recipe) -> Seat:
        """A new seat, whose hand is being started. Does not wait, so that callers cannot race."""
        if self._closed:
            raise DroverError(Reason.UNAVAILABLE, "the service stops", retry_after=_RETRY_AFTER)
        before = self._take_out(where)
        self._make_room()
        hand: asyncio.Future[Hand] = asyncio.get_running_loop().create_future()
        hand.add_done_callback(lambda done: done.cancelled() or done.exception())
        seat = self._seats[where] = Seat(hand, self._clock.monotonic())
        start = _settle(hand, self._start(where, recipe, before))
        self._tasks.create_task(start, name=f"start {where}")
        return seat

    def _make_room(self) -> None:
        """Ends the hand that has been idle longest, if there must be room for another."""
        if sum(seat.usable for seat in self._seats.values()) < self._size.max_live:
            return
        idle = [(seat.used_at, where) for where, seat in self._seats.items() if seat.idle]
        if not idle:
            raise DroverError(
                Reason.RESOURCE_EXHAUSTED,
                f"all {self._size.max_live} sandboxes are busy",
                retry_after=_RETRY_AFTER,
            )
        where = min(idle)[1]
        for evicted in self._take_out(where):
            end = self._end(where, evicted, "another session needed its place")
            self._tasks.create_task(end, name="evict")

    def _take_out(self, where: str) -> tuple[Seat, ...]:
        """Takes away the hand at an address; answers all at that address that have yet to end."""
        if (seat := self._seats.pop(where, None)) is not None:
            self._leaving[where].append(seat)
        return tuple(self._leaving.get(where, ()))

    async def _start(self, where: str, recipe: Recipe, before: tuple[Seat, ...]) -> Hand:
        for seat in before:
            await self._end(where, seat, "it is to be replaced")
        await self._lifecycle.before_start(where)
        blueprint = self._standard.blueprint(recipe)
        volume = self._workspaces.find(where)
        if volume is not None:
            await self._workspaces.complete(volume, blueprint.stores)
        if volume is None and (spare := self.spares.claim(blueprint)) is not None:
            hand, volume = spare
            hand.is_fresh = True
            try:
                self._workspaces.adopt(where, volume)
            except OSError:
                self.spares.discard(hand, volume, "its workspace could not be given away")
                raise
            self._assign(hand, where)
            _log.info("hand_assigned", session_id=session_of(where), hand_id=hand.id)
            return hand
        made = volume or partial(self._workspaces.make, where, blueprint.stores)
        hand = await self._starter.launch(made, blueprint, session_of(where))
        hand.is_fresh, hand.stores = volume is None, blueprint.stores
        if volume is not None:
            hand.lost = Lost.SANDBOX
        self._assign(hand, where)
        _log.info("hand_started", session_id=session_of(where), hand_id=hand.id)
        self.fill()
        return hand

    def _assign(self, hand: Hand, where: str) -> None:
        """Has a hand serve the session at an address, and no other from now on."""
        hand.assign(session_of(where))
        if hand.access is None and self._network is not None:
            told = self._network.cut_off(session_of(where), hand)
            self._tasks.create_task(told, name=f"cut off {where}")

    async def _end(self, where: str, seat: Seat, why: str) -> None:
        """Ends the hand of a seat that was taken out. Others may wait for the same end."""
        await asyncio.wait([seat.hand])
        if seat.hand.exception() is None:
            await seat.hand.result().kill(why)
        if seat not in (leaving := self._leaving.get(where, [])):
            return  # another one who waited was told first
        leaving.remove(seat)
        if not leaving:
            del self._leaving[where]
        if seat.hand.exception() is None:
            self._lifecycle.ended(where)


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
