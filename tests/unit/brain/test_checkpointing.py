"""What a brain does with checkpoints when something is out of the ordinary."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from chassis.errors import DroverError, Reason
from drover.session.v1.checkpoint_pb2 import Checkpoint
from drover.session.v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveCheckpointResponse
from services.brain.clients.checkpoints import MAX_UNDER_WAY, CheckpointSender
from services.brain.domain.checkpoint import MAX_BYTES
from services.brain.domain.state import State
from services.brain.harness.registry import HarnessRegistry
from services.brain.loop.checkpoints import NOTHING, Checkpointing, Mark
from services.brain.metrics import CheckpointMetrics
from tests.unit.brain import logs
from tests.unit.brain.logs import HARNESS, fold


class Desk:
    """Checkpointing whose sent checkpoints are kept here."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.sent: list[SaveCheckpointRequest] = []
        self.checkpointing = Checkpointing(
            HarnessRegistry(HARNESS), self.sent.append, CheckpointMetrics(self.registry)
        )

    def count(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.registry.get_sample_value("drover_brain_checkpoints_total", labels) or 0

    def leave(self, state: State, last: Mark = NOTHING) -> Mark:
        return self.checkpointing.leave(HARNESS, state, 7, last)

    def restore(self, checkpoint: Checkpoint) -> State | None:
        return self.checkpointing.restore(HARNESS, "sesn_1", checkpoint)


def state(*, seq: int = 200, text: str = "hello") -> State:
    one = fold(logs.session(), [logs.message(text)])
    one.seq = seq
    return one


def test_due_checkpoint_is_sent_under_the_lease_and_can_be_restored() -> None:
    desk, one = Desk(), state()
    assert desk.leave(one) == Mark.of(one)
    [request] = desk.sent
    assert (request.session_id, request.generation, request.checkpoint.seq) == ("sesn_1", 7, 200)
    assert desk.restore(request.checkpoint) is not None
    assert desk.count("restored") == 1
    assert [request.checkpoint.format] == list(desk.checkpointing.formats)


def test_one_that_is_not_due_is_not_even_written() -> None:
    desk, one = Desk(), state(seq=199)
    one.words = [object()]  # type: ignore[list-item]  # which nobody could write
    assert desk.leave(one) == NOTHING
    assert not desk.sent
    assert not desk.count("lost")


def test_state_that_cannot_be_written_is_let_be_until_the_next_is_due() -> None:
    desk, one = Desk(), state()
    one.words = [object()]  # type: ignore[list-item]
    mark = desk.leave(one)
    assert mark == Mark.of(one)
    assert not desk.sent
    assert desk.count("lost") == 1
    assert desk.leave(one, mark) == mark
    assert desk.count("lost") == 1


def test_state_that_is_too_large_is_not_sent() -> None:
    desk = Desk()
    for text in ("x" * MAX_BYTES, "x" * (MAX_BYTES - 200)):
        desk.leave(state(text=text))
    assert not desk.sent
    assert desk.count("lost") == 2
    desk.leave(state(text="x" * (MAX_BYTES - 100_000)))
    assert len(desk.sent) == 1


@pytest.mark.parametrize(
    ("error", "doubted"),
    [
        (ValueError("a bug"), True),
        (DroverError(Reason.INVALID_ARGUMENT, "events: no such call"), True),
        (DroverError(Reason.LEASE_LOST, "another brain is at work"), False),
        (DroverError(Reason.UNAVAILABLE, "away"), False),
    ],
)
def test_failure_casts_doubt_on_a_checkpoint_that_may_be_why(
    error: Exception, *, doubted: bool
) -> None:
    desk, one = Desk(), state()
    desk.leave(one)
    beginnings = desk.checkpointing.beginnings("sesn_1")
    assert beginnings is not None
    beginnings.failed(error)
    assert desk.checkpointing.beginnings("sesn_1") is not None  # it had none to begin from
    assert beginnings.restore(HARNESS, desk.sent[0].checkpoint) is not None
    beginnings.failed(error)
    assert (desk.checkpointing.beginnings("sesn_1") is None) is doubted
    assert desk.checkpointing.beginnings("sesn_2") is not None
    desk.leave(replace(one, seq=400))
    assert desk.checkpointing.beginnings("sesn_1") is not None


class Slow:
    """A checkpoint service that answers when it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = 0

    async def SaveCheckpoint(
        self, _request: SaveCheckpointRequest, **options: float
    ) -> SaveCheckpointResponse:
        assert options["timeout"] > 0
        self.begun += 1
        await self.go.wait()
        return SaveCheckpointResponse()


async def test_no_more_than_a_few_are_under_way_and_the_next_is_dropped() -> None:
    desk, service = Desk(), Slow()
    metrics = CheckpointMetrics(registry := CollectorRegistry())
    desk.registry = registry
    async with CheckpointSender(service, metrics) as sender:  # type: ignore[arg-type]
        for _ in range(MAX_UNDER_WAY + 2):
            sender.send(SaveCheckpointRequest())
        assert desk.count("lost") == 2
        service.go.set()
        await asyncio.gather(*sender._under_way)
        assert desk.count("saved") == service.begun == MAX_UNDER_WAY
