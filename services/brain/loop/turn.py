"""Turns of a session: the next decision, performed, until the lease is given back."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from catalogue.models import Catalogue, unlisted
from chassis.errors import DroverError, Reason
from drover.session.v1.lease_pb2 import (
    TAKE_INPUT_ALL,
    TAKE_INPUT_CONFIRMATIONS,
    TAKE_INPUT_CONTROL,
    TAKE_INPUT_NEXT,
    TAKE_INPUT_UNSPECIFIED,
)
from services.brain.clients.files import NoFiles
from services.brain.domain import budget, errors, events, mounts, servers
from services.brain.domain.calls import INTERRUPTED, Answerer
from services.brain.domain.decision import (
    AwaitTools,
    CallModel,
    CloseRequest,
    Compact,
    EnterRunning,
    GiveUp,
    GoIdle,
    Interrupt,
    ListTools,
    Mine,
    Refuse,
    Release,
    Rest,
    RunTools,
    Stop,
    TakeControl,
    TakeMessage,
)
from services.brain.domain.state import Status
from services.brain.domain.transcript import Shown
from services.brain.loop import spans, summary
from services.brain.loop.judgement import Judgement
from services.brain.loop.model_call import ModelCall, no_sandbox, unseen
from services.brain.loop.results import fit
from services.brain.loop.retry import blames_content, session_error
from services.brain.loop.server_lists import ServerLists
from services.brain.loop.sync_points import Point
from services.brain.loop.tool_runs import ToolRuns
from services.brain.model.port import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.clock import Clock
    from chassis.ids import IdSource
    from drover.event.v1.content_pb2 import ContentBlock
    from drover.event.v1.event_pb2 import Event
    from drover.event.v1.session_event_pb2 import RefusalDetails, SessionError, StopReason
    from drover.event.v1.span_event_pb2 import ModelUsage
    from drover.session.v1.lease_pb2 import InputWaiting
    from services.brain.clients.files import Files
    from services.brain.clients.hands import Hands
    from services.brain.clients.history import History
    from services.brain.clients.lease import Lease
    from services.brain.clients.snapshot import Snapshots
    from services.brain.domain.calls import Call
    from services.brain.domain.decision import Decision
    from services.brain.loop.retry import RetryPolicy
    from services.brain.loop.session_log import SessionLog
    from services.brain.loop.sync_points import SyncPoints
    from services.brain.model.port import ModelClient

_BEGINS = TakeMessage, ListTools, CallModel, Compact, RunTools, AwaitTools, Rest
"""Decisions that a brain which is to go leaves to the next one: what they begin takes a while."""

_log = structlog.get_logger("brain.turn")


@dataclass(frozen=True, slots=True)
class Ports:
    """What the turns of every session work with."""

    model: ModelClient
    retry: RetryPolicy
    clock: Clock
    ids: IdSource
    points: SyncPoints
    models: Catalogue = field(default_factory=unlisted)
    # Seconds that the model has to judge the calls of one response.
    judge_seconds: float = 60.0
    # The files that conversations show.
    files: Files = field(default_factory=NoFiles)


class Turns:
    """Performs decisions for one session while its lease is held."""

    def __init__(
        self,
        ports: Ports,
        log: SessionLog,
        lease: Lease,
        hands: Hands,
        tasks: asyncio.TaskGroup,
        *,
        history: History,
        snapshots: Snapshots,
    ) -> None:
        self._ports = ports
        self._log = log
        self._lease = lease
        self._factory = events.EventFactory(ports.ids, log.state.thread_id, log.state.agent.name)
        self._stir = asyncio.Event()
        self._hands = hands
        self._snapshots = snapshots
        # Whether the session may be another than the lease came with.
        self._aged = False
        self._runs = ToolRuns(hands, history, tasks, self._stir.set, ports.points)
        self._lists = ServerLists(hands, tasks, self._stir.set)
        self._model_call: ModelCall | None = None
        self._judgement = Judgement(ports, self._factory, log)
        # The model request that this brain has announced and not made yet.
        self._request = ""
        self._rested = False
        self._leaving = False
        self._in_turn = False
        self._span = ExitStack()

    def leave(self) -> None:
        """Has the session left to another brain: at once, but for a model request under way."""
        self._leaving = True
        self._stir.set()

    def on_input(self, waiting: InputWaiting) -> None:
        """Wakes the turn for input that has come; an interrupt stops the model at once."""
        self._stir.set()
        if waiting.interrupt:
            self._judgement.interrupt()
            if self._model_call is not None:
                self._model_call.interrupt()

    async def run(self) -> None:
        """Works until the session needs no brain and the lease is given back.

        Raises UNAVAILABLE when it has left the session to another brain.
        """
        with self._span:
            try:
                await self._log.settle()
                while not await self._step():
                    pass
            finally:
                self._runs.close()
                self._lists.close()

    async def _step(self) -> bool:
        """Takes one decision and performs it; whether it was the last."""
        self._stir.clear()
        self._record_finished()
        mine = Mine(self._request, self._runs.running, self._rested, self._lists.ready)
        decision = self._log.harness.decide(self._log.state, self._log.waiting, mine)
        if self._leaving and isinstance(decision, _BEGINS):
            await self._log.settle()  # the next one begins from the log
            raise DroverError(Reason.UNAVAILABLE, "this brain stops")
        ended = await self._perform(decision)
        self._aged = True
        return ended

    async def _perform(  # noqa: C901, PLR0912  # one arm per decision
        self, decision: Decision
    ) -> bool:
        match decision:
            case TakeMessage():
                await self._take_message()
            case EnterRunning():
                self._log.add(*self._factory.running())
                self._lists.begin(self._log.state)
            case ListTools():
                self._lists.begin(self._log.state)
                await self._log.flush()
                await self._stir.wait()
            case CallModel():
                return await self._call_model()
            case Compact():
                return await self._call_model(compact=True)
            case RunTools(calls):
                await self._run_tools(calls)
            case AwaitTools():
                await self._log.flush()
                await self._stir.wait()
            case Refuse(calls):
                for call in calls:
                    self._record(call.id, [events.text(call.refusal)], is_error=True)
            case TakeControl():
                await self._log.exchange(take=TAKE_INPUT_CONFIRMATIONS)
                await self._ports.points.reach(Point.CONTROL_TAKEN)
            case Interrupt(calls):
                await self._interrupt(calls)
            case CloseRequest():
                self._close_request()
            case Rest():
                await self._rest(decision)
            case GiveUp(error):
                return await self._give_up(error)
            case GoIdle():
                return await self._go_idle(decision)
            case Release() | Stop():
                ack = await self._log.exchange(release=True)
                return ack.released
        return False

    def _close_request(self) -> None:
        state = self._log.state
        for request in filter(None, (state.side_request, state.request)):
            self._log.add(self._factory.request_failed(request))
        self._request = ""

    async def _take_message(self) -> None:
        await self._ports.points.reach(Point.BEFORE_TAKE)
        self._end_span()
        self._begin_span()
        state = self._log.state
        running = [] if state.status is Status.RUNNING else self._factory.running()
        self._lists.begin(state)
        if servers.due(state.agent, state.servers):
            await self._log.exchange(running, take=TAKE_INPUT_NEXT)
        else:
            start = self._factory.request_start()
            await self._log.exchange([*running, start], take=TAKE_INPUT_NEXT)
            self._request = start.id
        await self._renew()
        await self._ports.points.reach(Point.INPUT_TAKEN)

    async def _renew(self) -> None:
        """What the user says next may be about files that the session has got since."""
        if self._log.state.self_hosted or not self._aged:
            return
        if (session := await self._snapshots.read()) is not None:
            self._log.renew(session)
            self._hands.bring(mounts.of(session))

    async def _call_model(self, *, compact: bool = False) -> bool:
        self._begin_span()
        log, state = self._log, self._log.state
        if not state.request:
            # What its start does to the context is decided about first.
            self._start_request()
            return False
        request, self._request = state.request, ""
        await log.flush()
        await self._ports.points.reach(Point.BEFORE_REQUEST)
        call = self._model_call = ModelCall(
            self._ports.model,
            self._factory,
            state,
            request=request,
            models=self._ports.models,
            files=self._ports.files,
            preview=unseen if compact else self._lease.preview,
            on_sandbox=no_sandbox if compact or state.self_hosted else self._runs.provision,
            points=self._ports.points,
        )
        if log.waiting.interrupt:
            call.interrupt()
        try:
            response = await call.perform(log.harness.request(state))
            if compact and response is not None:
                response = summary.of(response, self._factory, last_try=state.failures > 0)
                await self._ports.points.reach(Point.SUMMARISED)
        except ModelError as error:
            return await self._request_failed(request, call.usage(), error)
        finally:
            self._model_call = None
            self._rested = False
        if response is None:
            log.add(self._factory.request_failed(request, call.usage()))
        else:
            await self._ports.points.reach(Point.RESPONSE_COMPLETE)
            if await self._judgement.judge(response):
                log.add(*response)
            else:
                log.add(self._factory.request_failed(request, call.usage()))
        return False

    def _start_request(self) -> None:
        log, factory = self._log, self._factory
        if self._lists.ready:
            found = self._lists.found(log.state)
            self._tell(found.errors)
            start = factory.request_start(found.listing)
        else:
            start = factory.request_start()
        log.add(start)
        self._request = start.id

    def _tell(self, what: Sequence[SessionError]) -> None:
        """Says what went wrong beside the turn, which goes on."""
        told = errors.untold(self._log.state, what)
        self._log.add(*map(self._factory.aside, told))

    async def _request_failed(self, request: str, usage: ModelUsage, error: ModelError) -> bool:
        shown = self._log.state.transcript.shown() if blames_content(error) else Shown.NOWHERE
        withheld = shown is not Shown.NOWHERE
        overflow = error.overflow and not withheld
        self._log.add(
            self._factory.request_failed(request, usage, overflow=overflow, withheld=withheld)
        )
        if overflow:
            return False
        # What a tool has shown can be done without; without the user's own there is no answer.
        return await self._model_failed(error, again=shown is Shown.IN_RESULTS)

    async def _model_failed(self, error: ModelError, *, again: bool) -> bool:
        failures = self._log.state.failures + 1
        _log.warning(
            "model_request_failed", kind=error.kind, status=error.status, failures=failures
        )
        told = session_error(error)
        if not (error.retryable or again) or self._ports.retry.exhausted(failures):
            return await self._give_up(told)
        self._log.add(
            self._factory.error(told, retrying=True, retry_after=error.retry_after),
            *self._factory.rescheduled(),
        )
        return False

    async def _rest(self, rest: Rest) -> None:
        # There is time: whoever comes after must know of the failure.
        await self._log.settle()
        await self._ports.points.reach(Point.BEFORE_RETRY)
        delay = self._ports.retry.delay(rest.failures, rest.retry_after or None)
        # Input wakes it: the next decision rests again, unless it is an interrupt.
        deadline = self._ports.clock.monotonic() + delay
        while not (self._log.waiting.interrupt or self._leaving):
            remaining = deadline - self._ports.clock.monotonic()
            if remaining <= 0:
                break
            self._stir.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._stir.wait()
        self._rested = not self._leaving

    async def _run_tools(self, calls: Sequence[Call]) -> None:
        self._begin_span()
        # Not before the calls are durable: whoever comes after must know what was started.
        await self._log.settle()
        await self._ports.points.reach(Point.RESPONSE_DURABLE)
        self._runs.start(calls)
        await self._ports.points.reach(Point.TOOLS_SENT)

    async def _interrupt(self, calls: Sequence[Call]) -> None:
        await self._ports.points.reach(Point.INTERRUPT_SEEN)
        await self._log.flush()
        if sent := [call for call in calls if call.answerer in (Answerer.HANDS, Answerer.LOG)]:
            await self._runs.stop(sent)
        # A call that ended just before keeps its own result.
        self._record_finished()
        for call in calls:
            if not call.with_worker:
                self._record(call.id, [events.text(INTERRUPTED)], is_error=True)
            elif call.open:
                self._log.add(self._factory.stopped(call, INTERRUPTED))

    def _record_finished(self) -> None:
        self._tell(self._runs.troubles())
        for call_id, outcome in self._runs.finished():
            self._record(call_id, outcome.content, is_error=outcome.is_error)

    def _record(self, call_id: str, content: Sequence[ContentBlock], *, is_error: bool) -> None:
        call = self._log.state.calls.get(call_id)
        if call is not None and call.open:
            mcp = bool(call.server)
            result = self._factory.result(call_id, content, is_error=is_error, mcp=mcp)
            self._log.add(fit(result, self._factory))

    async def _give_up(self, error: SessionError) -> bool:
        await self._ports.points.reach(Point.BEFORE_GIVING_UP)
        self._close_request()  # one that was announced, and is not to be made
        last = [self._factory.error(error, retrying=False), *self._idle(events.exhausted(), None)]
        ack = await self._log.exchange(last, take=TAKE_INPUT_ALL, release=True)
        while ack.input_pending:  # more than is taken at a time
            await self._log.exchange(take=TAKE_INPUT_ALL)
            ack = await self._log.exchange(last, take=TAKE_INPUT_ALL, release=True)
        self._end_span()
        return ack.released

    async def _go_idle(self, decision: GoIdle) -> bool:
        await self._ports.points.reach(Point.BEFORE_IDLE)
        ack = await self._log.exchange(
            self._idle(decision.reason, decision.details, decision.thread),
            take=TAKE_INPUT_CONTROL if decision.take_interrupt else TAKE_INPUT_UNSPECIFIED,
            release=not decision.more,
        )
        if not ack.input_pending:
            self._lists.close()
            self._end_span()
        return ack.released

    def _idle(
        self,
        reason: StopReason,
        details: RefusalDetails | None,
        thread: StopReason | None = None,
    ) -> list[Event]:
        usage, cap = self._log.usage(), budget.message(self._log.state.budget)
        return self._factory.idle(reason, details, usage, cap, thread)

    def _begin_span(self) -> None:
        if not self._in_turn:
            self._in_turn = True
            self._span.enter_context(spans.invoke_agent(self._log.state))

    def _end_span(self) -> None:
        self._in_turn = False
        self._span.close()
