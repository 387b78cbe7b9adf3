"""The life of one call: the journal before, the hand, the journal after."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.backends.port import BackendUnavailable
from services.hands.domain import execution
from services.hands.domain.execution import Step
from services.hands.domain.remote import NO_PROXY
from services.hands.hand import HandDied, Lost
from services.hands.remote.outside import OUTSIDE
from services.hands.under_way import Stopped, unless_stopped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from services.hands.bringing.port import Told
    from services.hands.custody import Custody
    from services.hands.domain.journal import Journal
    from services.hands.domain.toolset import ToolCall
    from services.hands.hand import Hand, Reply
    from services.hands.pool import Pool
    from services.hands.remote.outside import Outside, OutsideCall
    from services.hands.under_way import Execution, Session

_PAUSE: Final = 0.5
"""Seconds until a journal that is away is asked again, where it does not say how long."""
_AWAY: Final = frozenset({Reason.UNAVAILABLE, Reason.RESOURCE_EXHAUSTED})

_log = structlog.get_logger("hands.executor")


class Calls:
    """Runs calls, each at most once. `drained`: nothing is waited for any more."""

    def __init__(
        self, journal: Journal, pool: Pool, custody: Custody, outside: Outside | None = None
    ) -> None:
        """Without an `outside` neither MCP servers nor the web are reached."""
        self._outside = outside
        self._journal = journal
        self._pool = pool
        self._custody = custody
        self.drained = False

    async def run(
        self, session_id: str, session: Session, under_way: Execution, call: ToolCall | OutsideCall
    ) -> None:
        """The call's whole life. Raises nothing: what goes wrong is the result's exception."""
        try:
            result = await self._once(session_id, session, under_way, call)
        except Stopped:
            under_way.result.set_result(execution.cancelled())
        except Exception as error:  # noqa: BLE001  # raised in every caller
            under_way.result.set_exception(error)
        except BaseException:
            under_way.result.cancel()
            raise
        else:
            under_way.result.set_result(result)
        finally:
            del session.calls[under_way.call_id]

    async def _once(
        self, session_id: str, session: Session, under_way: Execution, call: ToolCall | OutsideCall
    ) -> ExecuteResponse:
        if call.tool != "bash":
            return await self._journalled(session_id, session, under_way, call)
        # Before the journal: what waits here has not started. The lock is fair.
        shell = session.shells[under_way.name]
        if shell.locked():
            await unless_stopped(under_way, shell.acquire())
        else:
            await shell.acquire()
        try:
            return await self._journalled(session_id, session, under_way, call)
        finally:
            shell.release()

    async def _journalled(
        self, session_id: str, session: Session, under_way: Execution, call: ToolCall | OutsideCall
    ) -> ExecuteResponse:
        call_id = under_way.call_id
        begun = await self._journal.begin(session_id, call_id, under_way.generation, call.tool)
        session.take(under_way.generation)
        if begun.step is Step.ANSWER:
            return _recorded(begun)
        try:
            if isinstance(call, OUTSIDE):
                result = await self._sent(session_id, under_way, call)
            else:
                result = await self._perform(session_id, under_way, call, begun.record.starts)
        except DroverError:
            await self._keep(lambda: self._journal.forget(session_id, call_id))
            raise
        except Stopped:
            result = execution.cancelled()
        await self._keep(lambda: self._journal.finish(session_id, call_id, result))
        for work in under_way.after:
            await work()
        return result

    async def _keep(self, record: Callable[[], Awaitable[None]]) -> None:
        """Has the journal record what only this process knows, however long it is away.

        Whoever asks for the call meanwhile waits. Raises what the journal does when it is not away,
        and once the calls were drained: then the outcome is not known any more.
        """
        while True:
            try:
                await record()
            except DroverError as error:
                if self.drained or error.reason not in _AWAY:
                    raise
                _log.warning("result_waits_for_the_journal", reason=error.reason)
                await asyncio.sleep(min(error.retry_after or _PAUSE, _PAUSE))
            else:
                return

    async def _sent(
        self, session_id: str, under_way: Execution, call: OutsideCall
    ) -> ExecuteResponse:
        if self._outside is None:
            return execution.not_run(NO_PROXY)
        return await self._outside.run(session_id, under_way, call)

    async def _perform(
        self, session_id: str, under_way: Execution, call: ToolCall, starts: int
    ) -> ExecuteResponse:
        """Runs the tool, in a second sandbox if the first died and the tool only reads."""
        while True:
            try:
                return await self._in_hand(session_id, under_way, call)
            except BackendUnavailable as error:
                return execution.not_run(f"no sandbox could be started: {error}")
            except HandDied as death:
                _log.warning("hand_died", session_id=session_id, reason=str(death))
                if under_way.stop.is_set():
                    return execution.abandoned()
                if not execution.may_restart(call.tool, starts):
                    return execution.outcome_unknown(str(death))
            again = await self._journal.begin(
                session_id, under_way.call_id, under_way.generation, call.tool
            )
            if again.record.result is not None:
                return again.record.result
            starts = again.record.starts

    async def _in_hand(
        self, session_id: str, under_way: Execution, call: ToolCall
    ) -> ExecuteResponse:
        where, recipe, given = under_way.where, under_way.recipe, under_way.given
        if not self._pool.has(where):
            await self._custody.check(session_id, under_way.name)
            await unless_stopped(under_way, self._pool.prepare(where, recipe))
        async with self._pool.use(where, recipe) as hand:
            note = await self._note(session_id, under_way.call_id, call, hand)
            if not self._pool.furnished(where, hand, given):
                await unless_stopped(under_way, self._pool.furnish(where, hand, given))
            access = hand.access if call.tool == "bash" else None
            if access is not None and not access.settled:
                await unless_stopped(under_way, access.ready())
            reply, told = await self._attended(under_way, call, hand)
            if call.tool == "bash":
                # What becomes of a call that was cancelled is not shown to the model.
                hand.lost = Lost.SHELL if reply.cancelled else Lost.NOTHING
        result = execution.ran(
            reply.content, reply.duration, is_error=reply.is_error, cancelled=reply.cancelled
        )
        result.errors.extend(hand.problems)
        for one in told:
            for text in (*one.notes, *one.errors):
                execution.noted(result, text)
            result.is_error = result.is_error or bool(one.errors)
            result.found_skills.extend(one.found)
            under_way.after += one.after
        return execution.noted(result, note)

    async def _attended(
        self, under_way: Execution, call: ToolCall, hand: Hand
    ) -> tuple[Reply, list[Told]]:
        """Runs the tool, accompanied by what accompanies its calls."""
        where, given = under_way.where, under_way.given
        told: list[Told] = []
        wanted = [one for one in self._pool.attendants if one.wanted(where, hand, given)]
        if not wanted:  # as mostly
            return await _run(under_way, call, hand), told
        async with AsyncExitStack() as stack:
            for one in wanted:
                attending = one.attend(where, hand, given, under_way.call_id)
                told.append(await stack.enter_async_context(attending))
            reply = await _run(under_way, call, hand)
        return reply, told

    async def _note(self, session_id: str, call_id: str, call: ToolCall, hand: Hand) -> str:
        """What a command's result has to say of the shell that it found."""
        if call.tool != "bash" or call.input.get("restart"):
            return ""
        if hand.lost is Lost.SHELL:
            return execution.SHELL_LOST
        if hand.lost is Lost.SANDBOX and await self._journal.ran(
            session_id, "bash", besides=call_id
        ):
            return execution.SANDBOX_LOST
        return ""


async def _run(under_way: Execution, call: ToolCall, hand: Hand) -> Reply:
    if under_way.stop.is_set():
        raise Stopped
    under_way.hand = hand
    try:
        take = under_way.audience.put if under_way.audience else None
        return await hand.run(under_way.call_id, call, take)
    finally:
        under_way.hand = None


def _recorded(begun: execution.Begun) -> ExecuteResponse:
    result = ExecuteResponse()
    if begun.record.result is not None:
        result.CopyFrom(begun.record.result)
    result.replayed = begun.replayed
    return result
