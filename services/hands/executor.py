"""What is asked of hands: who may ask, which calls are under way, and what becomes of a session.

A call has one `Execution` while this process runs it (`calls`). Whoever asks for it meanwhile waits
for the same result; whoever asks later reads the journal's.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.calls import Calls
from services.hands.domain import execution, fence, handover, mounts, remote
from services.hands.domain.address import address, session_of
from services.hands.domain.recipe import DEFAULT
from services.hands.domain.toolset import InputRefused, parse
from services.hands.fencing import Fencing
from services.hands.remote.outside import parse_outside
from services.hands.under_way import Execution, Session, all_ended

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from services.hands.custody import Custody
    from services.hands.domain.handover import Generations, HandOver
    from services.hands.domain.journal import Journal
    from services.hands.domain.recipe import Recipe
    from services.hands.hand import Hand
    from services.hands.pool import Pool
    from services.hands.remote.outside import Destination, Outside


class Executor:
    """Runs every call at most once. `tasks` owns what goes on when the caller is gone."""

    def __init__(
        self,
        journal: Journal,
        pool: Pool,
        tasks: asyncio.TaskGroup,
        custody: Custody,
        outside: Outside | None = None,
    ) -> None:
        """Without an `outside` neither MCP servers nor the web are reached."""
        self._journal = journal
        self._pool = pool
        self._custody = custody
        self._tasks = tasks
        self._sessions: defaultdict[str, Session] = defaultdict(Session)
        self._fencing = Fencing(journal, self._sessions, tasks)
        self._outside = outside
        self._draining = False
        self._calls = Calls(journal, pool, custody, outside)

    async def provision(
        self,
        session_id: str,
        generation: int,
        recipe: Recipe = DEFAULT,
        *,
        name: str = "",
        given: mounts.Mounts = mounts.NONE,
    ) -> tuple[Hand, bool]:
        """The session's hand of that name, with what it is `given`, and whether it was there
        already.

        The generation may yet have to become durable: whatever has effects sees to that itself
        (docs/adr/0027). Raises LEASE_LOST, NOT_FOUND for a session of another workspace,
        RESOURCE_EXHAUSTED, ARCHIVED for a hand that was handed over, and `BackendUnavailable`.
        """
        kept = await self._fencing.admit(session_id, generation)
        session = self._sessions[session_id]
        self._custody.check_rests(session_id, name)
        where = address(session_id, name)
        existing = self._pool.has(where)
        session.provisions[name] += 1
        try:
            if not existing:
                await self._custody.check(session_id, name)
            # Again, for the session may have ended meanwhile: no sandbox may start behind its end.
            fence.advance(session.generation, generation)
            async with self._pool.use(where, recipe) as hand:
                await self._pool.furnish(where, hand, given, again=True)
                if kept.done():
                    kept.result()  # raises why it could not be kept
                return hand, existing
        finally:
            session.provisions[name] -= 1

    async def execute(
        self,
        session_id: str,
        call_id: str,
        generation: int,
        tool: str,
        text: str,
        *,
        recipe: Recipe = DEFAULT,
        name: str = "",
        destination: Destination | None = None,
        given: mounts.Mounts = mounts.NONE,
    ) -> ExecuteResponse:
        """The result of a call, which is run if it never was. `text` is the input's JSON.

        `name` is the hand's that runs it, and that has what is `given` by then, if it has no other
        `destination`. Goes on when the caller
        is cancelled. Raises LEASE_LOST, NOT_FOUND for a session of another workspace,
        RESOURCE_EXHAUSTED, ARCHIVED for a hand that was handed over, and UNAVAILABLE once the
        calls are drained; nothing has run then.
        """
        asked = await self.ask(
            *(session_id, call_id, generation, tool, text),
            recipe=recipe,
            name=name,
            destination=destination,
            given=given,
        )
        if isinstance(asked, ExecuteResponse):
            return asked
        return await asyncio.shield(asked.result)

    async def ask(
        self,
        session_id: str,
        call_id: str,
        generation: int,
        tool: str,
        text: str,
        *,
        recipe: Recipe = DEFAULT,
        name: str = "",
        destination: Destination | None = None,
        given: mounts.Mounts = mounts.NONE,
    ) -> Execution | ExecuteResponse:
        """The call under way, which is begun if it is not, or its refusal. As `execute`."""
        session = self._sessions[session_id]
        session.check_workspace(session_id)
        fence.advance(session.generation, generation)
        under_way = session.calls.get(call_id)
        if under_way is None:
            if self._draining:
                raise DroverError(Reason.UNAVAILABLE, "the service stops")
            try:
                call = (
                    parse(tool, text)
                    if destination is None
                    else parse_outside(destination, tool, text)
                )
            except InputRefused as refusal:
                await self._fencing.keep(session_id, generation)
                return execution.not_run(str(refusal))
            if destination is None:
                self._custody.check_rests(session_id, name)
            under_way = session.calls[call_id] = Execution(
                call_id,
                generation,
                recipe,
                name=name if destination is None else remote.REMOTE,
                where=address(session_id, name),
                given=given,
            )
            run = self._calls.run(session_id, session, under_way, call)
            self._tasks.create_task(run, name=f"call {call_id}")
        else:
            fence.check_workspace(session_id, under_way.workspace_id, current_call().workspace_id)
            under_way.generation = max(under_way.generation, generation)
            await self._fencing.keep(session_id, generation)
        return under_way

    async def cancel(self, session_id: str, generation: int, call_ids: Sequence[str]) -> None:
        """Stops calls, and keeps those that were never seen from ever running.

        None of them runs any more when this returns. Raises LEASE_LOST, and NOT_FOUND for a session
        of another workspace.
        """
        session = self._sessions[session_id]
        session.check_workspace(session_id)
        fence.advance(session.generation, generation)
        await self._journal.cancel(session_id, generation, call_ids)
        session = self._sessions[session_id]  # looked up now: it may be another one
        session.take(generation)
        calls = [session.calls[call_id] for call_id in call_ids if call_id in session.calls]
        for call in calls:
            call.stop.set()
        async with asyncio.TaskGroup() as stops:
            for call in calls:
                if call.hand is not None:
                    stops.create_task(call.hand.cancel(call.call_id))
        await all_ended(calls)

    async def serves(self, session_id: str) -> bool:
        """Whether a session is of the workspace that calls, or of none that is known."""
        return await self._journal.owner(session_id) in {"", current_call().workspace_id}

    async def end(self, session_id: str, generation: int) -> None:
        """Takes nothing of the session's last lease generation any more.

        Raises LEASE_LOST when there was a newer one.
        """
        session = self._sessions[session_id]
        session.generation = fence.advance(session.generation, generation + 1)
        await self._journal.end(session_id, generation)
        session.take(generation + 1)

    async def fence(self, session_id: str, generation: int) -> None:
        """Takes a generation, which may not be older than the newest seen. Raises LEASE_LOST."""
        await self._fencing.keep(session_id, generation)

    async def release(
        self, session_id: str, name: str | None = None, *, purge: bool = False
    ) -> None:
        """Ends a session's hand of that name, or all that it has, and the calls that run there.

        `purge`: nobody is interested any more in what it leaves. Raises UNAVAILABLE while one of
        them is being handed over.
        """
        session = self._sessions[session_id]
        if name is None:
            self._custody.check_all_rest(session_id)
            calls = list(session.calls.values())
        else:
            self._custody.check_rests(session_id, name)
            calls = session.calls_in(name)
        for call in calls:
            call.stop.set()
        left = await self._let_go(session_id, name)
        await all_ended(calls)
        # Of what one of them may have begun to start, too.
        left |= await self._let_go(session_id, name)
        if name is None:
            await self._pool.withdraw(session_id)
            if self._outside is not None:
                await self._outside.end(session_id)
        if not purge:  # last: the caller may not wait so long
            if name is None:
                # Without descriptors those that no hand of this process had are left for later.
                with suppress(OSError):
                    left |= await self._custody.addresses(session_id)
            await self._pool.leave(left)
        self.prune()

    async def hand_over(
        self, wanted: HandOver, generations: Generations, workspace_id: str
    ) -> Hand | None:
        """Hands a hand on to another session; answers the sandbox that goes along, if any.

        Goes on when the caller is cancelled. Raises what `Custody.hand_over` does, and
        SESSION_RUNNING (`hand_busy`) when somebody uses the hand.
        """
        handover.check_sense(wanted)
        if not await self.serves(wanted.session_id):
            raise handover.not_made(wanted.session_id, wanted.hand)
        if not await self.serves(wanted.to_session_id):
            raise handover.not_seen(wanted.to_session_id)
        for session_id, name in (
            (wanted.session_id, wanted.hand),
            (wanted.to_session_id, wanted.to_hand),
        ):
            self._custody.check_rests(session_id, name)
            session = self._sessions[session_id]
            if calls := session.calls_in(name):
                raise handover.busy(name, f"the call {calls[0].call_id} is under way")
            where = address(session_id, name)
            if session.provisions[name] or self._pool.starts(where) or self._pool.furnishing(where):
                raise handover.busy(name, "it is being made ready")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        move = self._custody.hand_over(wanted, generations, workspace_id)  # from now on
        moved = self._fenced(move, wanted, generations)
        self._tasks.create_task(_settle(done, moved), name=f"hand over {wanted.where}")
        await asyncio.shield(done)
        return self._pool.live().get(wanted.to)

    async def purge(self, session_id: str, generation: int) -> None:
        """Forgets a session that was released, and deletes its files.

        `generation` is its last, 0 if it has none. Raises `OSError` when files stay.
        """
        await self._custody.purge(session_id)
        await self._journal.purge(session_id, generation)
        session = self._sessions[session_id]
        session.workspace_id = ""
        if not generation:
            session.generation = 0
        self.prune()

    async def purge_hand(self, session_id: str, name: str) -> None:
        """Deletes the files of a hand that was released. Raises `OSError` when some stay."""
        await self._custody.purge(session_id, name)

    async def drain(self, seconds: float) -> None:
        """Gives the calls under way so long to end by themselves, and takes no others."""
        self._draining = True
        calls = [
            call.result for session in self._sessions.values() for call in session.calls.values()
        ]
        if calls:
            await asyncio.wait(calls, timeout=seconds)
        self._calls.drained = True

    def prune(self) -> None:
        """Drops what is known of sessions that nothing is done for any more."""
        served = {session_of(where) for where in self._pool.live()}
        for session_id, session in list(self._sessions.items()):
            if not session.calls and not +session.provisions and session_id not in served:
                del self._sessions[session_id]
        if self._outside is not None:
            self._outside.prune()

    async def _let_go(self, session_id: str, name: str | None) -> set[str]:
        wanted = self._pool.addresses(session_id) if name is None else [address(session_id, name)]
        for where in wanted:
            await self._pool.release(where)
        return {*wanted}

    async def _fenced(
        self, move: Awaitable[None], wanted: HandOver, generations: Generations
    ) -> None:
        """Knows of the generations that the record of a hand-over has taken."""
        await move
        for session_id, generation in (
            (wanted.session_id, generations.giver),
            (wanted.to_session_id, generations.receiver),
        ):
            self._sessions[session_id].take(generation)  # looked up now: it may be another one


async def _settle(done: asyncio.Future[None], work: Awaitable[None]) -> None:
    """Hands on what comes of `work`. Raises nothing: what goes wrong is the waiter's matter."""
    try:
        await work
    except Exception as error:  # noqa: BLE001  # raised in the caller
        done.set_exception(error)
    except BaseException:
        done.cancel()
        raise
    else:
        done.set_result(None)
