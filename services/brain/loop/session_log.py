"""The session's log as the brain has it: folded state, and the events that are on their way.

Events are folded when they are written, ahead of their acknowledgement: the lease makes sure that
nobody else writes, and a refusal ends the lease and the state with it. Only what may be refused
alone, a release, and what follows input that is not known yet, is folded when it is acknowledged.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from drover.session.v1.lease_pb2 import (
    TAKE_INPUT_NEXT,
    TAKE_INPUT_UNSPECIFIED,
    Appended,
    AppendEvents,
    InputWaiting,
    TakeInput,
)
from services.brain.domain import budget, calls, projection
from services.brain.domain.decision import rests
from services.brain.domain.state import renew
from services.brain.loop.checkpoints import NOTHING, Mark

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from catalogue.models import Catalogue
    from drover.event.v1.event_pb2 import Event
    from drover.event.v1.usage_pb2 import UsageSnapshot
    from drover.session.v1.checkpoint_pb2 import Checkpoint, CheckpointFormat
    from drover.session.v1.session_pb2 import Session
    from services.brain.clients.lease import Lease
    from services.brain.domain.state import State
    from services.brain.harness.port import Harness
    from services.brain.harness.registry import HarnessRegistry
    from services.brain.loop.checkpoints import Beginnings
    from services.brain.loop.state_cache import CachedState

MAX_UNDER_WAY: Final = 64
"""Appends without an acknowledgement, past which the brain waits for the session service."""

_ANSWERS: Final = frozenset({"user_custom_tool_result", "user_tool_result"})
"""What clients and workers answer calls with."""


class DriftError(Exception):
    """The log is not what this brain has folded: its state is worth nothing any more."""


class SessionLog:
    """One session's log, read and written under a lease. Implements `LogReceiver`."""

    def __init__(
        self,
        harnesses: HarnessRegistry,
        models: Catalogue,
        cached: CachedState | None,
        beginnings: Beginnings | None = None,
    ) -> None:
        self._harnesses = harnesses
        self._models = models
        self._cached = cached
        self._beginnings = beginnings if cached is None else None
        # How far the session's last checkpoint goes, as far as this brain knows.
        self.checkpoint = cached.checkpoint if cached is not None else NOTHING
        self._on_input: Callable[[InputWaiting], None] | None = None
        self._opened = False
        self._lease: Lease
        self._last: asyncio.Future[Appended]
        self._batch: list[Event] = []
        self._under_way: deque[AppendEvents] = deque()
        # Events that are folded when their append is acknowledged, by its request id.
        self._deferred: dict[int, Sequence[Event]] = {}
        # How often it was learnt that events had come in by other ways.
        self._surprises = 0
        # Results of ours that came second to a client's, which the log will not keep.
        self._void: set[str] = set()
        self.harness: Harness
        self.state: State

    def attach(self, lease: Lease) -> None:
        """Names the lease to write under."""
        self._lease = lease

    def anticipate(self) -> None:
        """Has input taken along with the lease, if only input can have woken this session.

        So a message that comes to a session at rest costs no round trip of its own. `settle` waits
        for it; nothing may be decided before.
        """
        if self._cached is not None and rests(self._cached.state):
            append = AppendEvents(take=TAKE_INPUT_NEXT)
            self._under_way.append(append)
            self._last = self._lease.anticipate(append)

    def listen(self, on_input: Callable[[InputWaiting], None]) -> None:
        """Names who is to be told of input that comes."""
        self._on_input = on_input

    @property
    def head(self) -> int:
        """The last position of the log that is folded."""
        if self._opened:
            return self.state.seq
        return self._cached.state.seq if self._cached is not None else 0

    @property
    def waiting(self) -> InputWaiting:
        """What waits in the inbox, as far as is known."""
        return self._lease.waiting

    @property
    def checkpoint_formats(self) -> Sequence[CheckpointFormat]:
        """The checkpoints that a state can be restored from, where none is cached."""
        return self._beginnings.formats if self._beginnings is not None else ()

    def opened(self, session: Session, checkpoint: Checkpoint | None) -> bool:
        """Takes up the cached state, or the checkpoint's, if it fits; else begins at the beginning.

        False for a checkpoint that does not fit: the log is needed whole.
        """
        self.harness = self._harnesses.choose(session.agent)
        if self._beginnings is not None and checkpoint is not None:
            state = self._beginnings.restore(self.harness, checkpoint)
            if state is None:
                self._beginnings = None
                return False
            self.state, self.checkpoint = state, Mark.of(state)
            renew(state, session)
        elif self._cached is None:
            self.state = self.harness.begin(session)
        elif self._cached.harness == self.harness.name:
            self.state = self._cached.state
            renew(self.state, session)
        else:
            msg = f"folded by {self._cached.harness}, wanted by {self.harness.name}"
            raise DriftError(msg)
        self._opened = True
        return True

    def logged(self, events: Sequence[Event]) -> None:
        """Folds what the log held already, or has got while the connection was broken."""
        now = self._lease.now()
        self._surprises += 1
        for event in events:
            if event.seq != self.state.seq + 1:
                msg = f"event {event.seq} follows {self.state.seq}"
                raise DriftError(msg)
            self.state.seq = event.seq
            self._fold_other(event, now)

    def appended(self, append: AppendEvents, ack: Appended) -> None:
        """Folds what entered the log with, and before, an append."""
        deferred = self._deferred.pop(append.request_id, ())
        now = self._lease.now()
        self._surprises += bool(ack.others)
        for event in ack.others:
            self._fold_other(event, now)
        kept = 0
        if not ack.input_pending:
            # Settled from the log, it has what came in by other ways among what it took.
            for event in ack.taken:
                self._fold_other(event, now)
        self._under_way.popleft()
        if not ack.input_pending:
            for event in deferred:
                self.harness.project(self.state, event, now)
            kept = len(ack.taken) + sum(event.id not in self._void for event in append.events)
        self.state.seq += len(ack.others) + kept
        if self.state.seq != ack.head_seq:
            msg = f"the log is at {ack.head_seq}, {self.state.seq} events are folded"
            raise DriftError(msg)

    def usage(self) -> UsageSnapshot:
        """What the session has used, and cost, until now."""
        return budget.told(self.state.usage, self._lease.now(), self._models)

    def renew(self, session: Session) -> None:
        """Goes on with a newer copy of the session."""
        renew(self.state, session)

    def input_changed(self, waiting: InputWaiting) -> None:
        """Passes on what waits in the inbox."""
        if self._on_input is not None:
            self._on_input(waiting)

    def add(self, *events: Event) -> None:
        """Writes events: folded now, sent with the next flush."""
        now = self._lease.now()
        for event in events:
            self.harness.project(self.state, event, now)
        self._batch.extend(events)

    async def flush(self) -> None:
        """Sends what was written, without waiting for its acknowledgement."""
        if self._batch:
            batch, self._batch = self._batch, []
            append = AppendEvents(events=batch)
            if any(event.HasField("span_model_request_end") for event in batch):
                append.usage.CopyFrom(self.usage())
            future = self._send(append)
            if self._lease.unacknowledged > MAX_UNDER_WAY:
                await future

    async def settle(self) -> None:
        """Sends what was written and waits until all of it is durable."""
        await self.flush()
        if self._under_way:
            await self._last

    async def exchange(
        self,
        events: Sequence[Event] = (),
        *,
        take: TakeInput.ValueType = TAKE_INPUT_UNSPECIFIED,
        release: bool = False,
    ) -> Appended:
        """Takes input, appends `events` behind it, and perhaps gives the lease back; in one step.

        What was written before goes first. A release that is refused appends none of `events`.
        """
        if take != TAKE_INPUT_UNSPECIFIED:
            await self.flush()
        batch, self._batch = self._batch, []
        append = AppendEvents(events=[*batch, *events], take=take, release=release)
        if release:
            append.usage.CopyFrom(_told(events) or self.usage())
        surprises = self._surprises
        ack = await self._send(append, deferred=events)
        if ack.input_pending:
            self._batch = batch + self._batch
            # It may be refused for what was learnt on its way: by the acknowledgement of an append
            # before it, or over a new connection.
            named = any(value for _, value in ack.input.ListFields())
            if not named and self._surprises == surprises:
                msg = "a release was refused for input that nobody names"
                raise DriftError(msg)
        return ack

    def _send(
        self, append: AppendEvents, deferred: Sequence[Event] = ()
    ) -> asyncio.Future[Appended]:
        self._under_way.append(append)
        self._last = self._lease.append(append)
        if deferred:
            self._deferred[append.request_id] = deferred
        return self._last

    def _fold_other(self, event: Event, now: float) -> None:
        if event.WhichOneof("payload") in _ANSWERS and (ours := self._rival(event)):
            self._void.add(ours.id)
            projection.correct(self.state, event)
        else:
            self.harness.project(self.state, event, now)

    def _rival(self, answer: Event) -> Event | None:
        """Our own result of the call that a client's `answer` was quicker to answer."""
        call_id = calls.answered_by(answer)
        unacknowledged = (event for append in self._under_way for event in append.events)
        return next(
            (
                event
                for event in (*unacknowledged, *self._batch)
                if calls.answered_by(event) == call_id
            ),
            None,
        )


def _told(events: Sequence[Event]) -> UsageSnapshot | None:
    """The usage that events tell of, so that the session says the same as its log."""
    for event in events:
        if event.HasField("session_usage"):
            return event.session_usage.usage
    return None
