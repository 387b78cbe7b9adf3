"""Clones a session's repositories into a hand that has none of them yet.

Inside of the sandbox, over its way out, where the vault proxy adds the token: nothing here or there
knows one. What lies at a repository's place already is left as it is, so that a workspace that was
kept, or restored, is not begun anew.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import structlog

from chassis.errors import DroverError
from services.hands.backends import inside
from services.hands.domain import repository as repositories
from services.hands.domain.address import session_of
from services.hands.egress import variables
from services.hands.hand import HandDied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.clock import Clock
    from drover.event.v1.session_event_pb2 import SessionError
    from services.hands.domain.repository import Repository
    from services.hands.egress.grants import Grants
    from services.hands.hand import Hand
    from services.hands.pool import Pool

WAIT_SECONDS: Final = 45.0
"""How long the first calls, and whoever has a hand made ready, wait for what goes on behind them:
less than a brain gives either."""
NO_WAY_OUT: Final = "clone\nsandboxes of this kind have no network"
_LOOK_AGAIN_SECONDS: Final = 5.0
_AT_ONCE: Final = 3
_ENVIRONMENT: Final = inside.ENVIRONMENT | variables.NETWORK

_log = structlog.get_logger("hands.repositories")


@dataclass(slots=True)
class _State:
    """What is known of one hand. `settled`: nothing is missing that was to be cloned."""

    session_id: str
    settled: bool = False
    failed: bool = False
    look_at: float = 0.0
    under_way: asyncio.Task[None] | None = None


class Mounts:
    """The repositories in the hands of a pool. `tasks` owns the cloning; `seconds` bound one.

    Without `grants` there is no network, and nobody to say which repositories there are.
    """

    def __init__(
        self,
        pool: Pool,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        grants: Grants | None,
        *,
        seconds: float,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._pool = pool
        self._tasks = tasks
        self._clock = clock
        self._grants = grants
        self._seconds = seconds
        self._wait_seconds = wait_seconds
        self._addresses: set[str] = set()
        self._states: WeakKeyDictionary[Hand, _State] = WeakKeyDictionary()

    def settled(self, where: str, hand: Hand) -> bool:
        """Whether `ready` has nothing to do."""
        return self._grants is None or self._of(where, hand).settled

    async def ready(self, where: str, hand: Hand, *, again: bool = False) -> None:
        """Waits until what is missing was cloned, or has failed; not for ever, as that goes on.

        `Hand.missing` tells of what has failed, which is tried once more with `again`. Raises
        nothing.
        """
        state = self._of(where, hand)
        if self._grants is None or state.settled:
            return
        if state.under_way is None:
            if not again and (state.failed or self._clock.monotonic() < state.look_at):
                return
            work = self._mount(where, hand, state)
            state.under_way = self._tasks.create_task(work, name=f"mount {where}")
        await asyncio.wait((state.under_way,), timeout=self._wait_seconds)

    def busy(self, where: str) -> bool:
        """Whether anything is being cloned into the hand at an address."""
        return where in self._addresses

    def _of(self, where: str, hand: Hand) -> _State:
        state, session_id = self._states.get(hand), session_of(where)
        if state is None or state.session_id != session_id:  # it was handed on
            state = self._states[hand] = _State(session_id)
            hand.missing = ()
        return state

    async def _mount(self, where: str, hand: Hand, state: _State) -> None:
        self._addresses.add(where)
        try:
            # Kept while it lasts, whoever has stopped waiting for it.
            with self._pool.keep(where, hand) as there:
                if there:
                    await self._clone(hand, await self._wanted(hand, state.session_id), state)
        except* HandDied:
            pass  # the next one begins anew
        except* DroverError:
            _log.info("repositories_wait", session_id=state.session_id)
        except* Exception:  # noqa: BLE001  # whatever it is, the other hands go on
            _log.exception("repositories_not_cloned", session_id=state.session_id)
        finally:
            state.look_at = self._clock.monotonic() + _LOOK_AGAIN_SECONDS
            state.under_way = None
            self._addresses.discard(where)

    async def _wanted(self, hand: Hand, session_id: str) -> Sequence[Repository] | None:
        """The session's repositories; `None` while nobody can say."""
        if hand.access is not None:
            await hand.access.ready()
            return hand.access.repositories
        if self._grants is None:
            return ()
        grant = await self._grants.current(session_id, hand.id)
        self._grants.drop(session_id, hand.id)
        return grant.repositories

    async def _clone(self, hand: Hand, wanted: Sequence[Repository] | None, state: _State) -> None:
        if wanted is None:  # the vault proxy is away
            return
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(repository: Repository) -> SessionError | None:
            async with room:
                return await self._try(hand, repository, state.session_id)

        async with asyncio.TaskGroup() as tasks:
            tries = [tasks.create_task(one(repository)) for repository in wanted]
        hand.missing = tuple(error for done in tries if (error := done.result()) is not None)
        state.failed = bool(hand.missing)
        state.settled = not state.failed

    async def _try(
        self, hand: Hand, repository: Repository, session_id: str
    ) -> SessionError | None:
        if hand.access is None:
            return repositories.failure(repository, NO_WAY_OUT)
        began = self._clock.monotonic()
        about = {"session_id": session_id, "resource_id": repository.resource_id}
        _log.info("repository_clone_begins", **about)
        call = repositories.clone(repository, _ENVIRONMENT, self._seconds)
        reply = await hand.run(f"clone {repository.resource_id}", call)
        text = "".join(block.text.text for block in reply.content)
        seconds = round(self._clock.monotonic() - began, 3)
        if not reply.is_error:
            if text == repositories.CLONED:
                _log.info("repository_cloned", seconds=seconds, **about)
            return None
        failure = repositories.failure(repository, text)
        _log.warning(
            "repository_not_cloned", kind=failure.WhichOneof("error"), seconds=seconds, **about
        )
        return failure
