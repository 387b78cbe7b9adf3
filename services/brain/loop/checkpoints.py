"""When a brain leaves a checkpoint behind, and when it takes one up."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from drover.session.v1.checkpoint_pb2 import Checkpoint, CheckpointFormat
from drover.session.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from services.brain.domain.checkpoint import MAX_BYTES, CheckpointError, Checkpoints
from services.brain.domain.codec import CodecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from services.brain.domain.state import State
    from services.brain.harness.port import Harness
    from services.brain.metrics import CheckpointMetrics

LEAST_EVENTS: Final = 200
LEAST_BYTES: Final = 1024 * 1024
LEAST_SHARE: Final = 8
"""A checkpoint is left once so many events, or bytes of conversation, came since the last one; of a
long log one in so many. So short sessions have none, and what is written of a long one stays in
proportion to what is in it."""

_MAX_DOUBTED: Final = 1000

# What work ends by whatever it began with.
_NOT_OURS: Final = frozenset({Reason.LEASE_LOST, Reason.UNAVAILABLE, Reason.NOT_FOUND})

_log = structlog.get_logger("brain.checkpoints")


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the last checkpoint goes: the log's position, and the conversation's bytes."""

    seq: int = 0
    size: int = 0

    @classmethod
    def of(cls, state: State) -> Mark:
        """How far one goes that is taken now."""
        return cls(state.seq, len(state.transcript))

    def is_far_behind(self, now: Mark) -> bool:
        """Whether it pays to take another."""
        events, size = now.seq - self.seq, now.size - self.size
        return events >= max(LEAST_EVENTS, self.seq // LEAST_SHARE) or size >= max(
            LEAST_BYTES, self.size // LEAST_SHARE
        )


NOTHING: Final = Mark()
"""The mark of a session without a checkpoint, or with one that nobody here knows of."""


class Beginnings:
    """The checkpoint that one session's work may begin from, and whether it did."""

    def __init__(self, checkpointing: Checkpointing, session_id: str) -> None:
        self._checkpointing = checkpointing
        self._session_id = session_id
        self._restored = False

    @property
    def formats(self) -> Sequence[CheckpointFormat]:
        """The checkpoints that can be taken up."""
        return self._checkpointing.formats

    def restore(self, harness: Harness, checkpoint: Checkpoint) -> State | None:
        """The state that a checkpoint holds; `None` for one that is not to be trusted."""
        state = self._checkpointing.restore(harness, self._session_id, checkpoint)
        self._restored = state is not None
        return state

    def failed(self, error: Exception) -> None:
        """The work has failed."""
        excused = isinstance(error, DroverError) and error.reason in _NOT_OURS
        if self._restored and not excused:
            self._checkpointing.doubt(self._session_id)


class Checkpointing:
    """Leaves and takes up checkpoints of the sessions that a brain works on.

    `send` takes one that is to be kept, without waiting.
    """

    def __init__(
        self,
        harnesses: Iterable[Harness],
        send: Callable[[SaveCheckpointRequest], None],
        metrics: CheckpointMetrics,
    ) -> None:
        self._checkpoints = Checkpoints()
        self._formats = [self._format(harness) for harness in harnesses]
        self._send = send
        self._metrics = metrics
        self._doubted: OrderedDict[str, None] = OrderedDict()

    def beginnings(self, session_id: str) -> Beginnings | None:
        """Where work on a session may begin; `None` if it is to be at the log's beginning."""
        return None if session_id in self._doubted else Beginnings(self, session_id)

    @property
    def formats(self) -> Sequence[CheckpointFormat]:
        """The checkpoints that can be taken up."""
        return self._formats

    def doubt(self, session_id: str) -> None:
        """Has the session's log folded whole from now on, until it has left a new checkpoint.

        Work that began from a checkpoint has failed: if that is why, it would fail again and again.
        """
        self._doubted[session_id] = None
        while len(self._doubted) > _MAX_DOUBTED:
            self._doubted.popitem(last=False)

    def restore(self, harness: Harness, session_id: str, checkpoint: Checkpoint) -> State | None:
        """The state that a checkpoint holds; `None` for one that is not to be trusted."""
        read, data = self._checkpoints.read, checkpoint.data
        try:
            if checkpoint.format == self._format(harness):
                state = read(data, harness.fold, session_id, checkpoint.seq)
            else:  # the agent has changed its harness
                state = None
        except CheckpointError as error:
            self._metrics.count("refused")
            _log.warning("checkpoint_refused", session_id=session_id, why=str(error))
            return None
        if state is not None:
            self._metrics.count("restored")
        return state

    def leave(self, harness: Harness, state: State, generation: int, last: Mark) -> Mark:
        """Has a checkpoint kept if one is due; answers how far the last one goes now.

        `state` is folded up to `state.seq` and nothing beyond, under the lease `generation`.
        """
        now = Mark.of(state)
        if not last.is_far_behind(now):
            return last
        data = self._encode(harness, state) if now.size < MAX_BYTES else b""
        if not 0 < len(data) <= MAX_BYTES:
            self._metrics.count("lost")
            return now  # the next time that one is due it is tried again
        self._doubted.pop(state.session_id, None)
        self._send(
            SaveCheckpointRequest(
                session_id=state.session_id,
                generation=generation,
                checkpoint=Checkpoint(format=self._format(harness), seq=state.seq, data=data),
            )
        )
        return now

    def _encode(self, harness: Harness, state: State) -> bytes:
        try:
            return self._checkpoints.write(state, harness.fold)
        except CodecError as error:
            _log.error("checkpoint_impossible", session_id=state.session_id, why=str(error))
            return b""

    def _format(self, harness: Harness) -> CheckpointFormat:
        version = self._checkpoints.version(harness.fold)
        return CheckpointFormat(harness=harness.name, version=version)
