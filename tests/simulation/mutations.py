"""Deliberate mistakes in the product: a simulation that does not find them is worth nothing."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from chassis.errors import DroverError
from services.brain.domain import budget, listing
from services.brain.domain.listing import Found
from services.brain.domain.transcript import Transcript
from services.brain.loop import server_lists
from services.brain.loop.checkpoints import Checkpointing
from services.hands.domain import execution
from services.hands.domain.execution import Begun, Record, Step
from services.hands.remote.mcp import McpTools
from services.session.domain import append, lease
from tests.doubles import hands_journal
from tests.simulation.world import NONE, Mutations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


@contextmanager
def fence_dropped() -> Iterator[Mutations]:
    """Whoever once held a lease may go on writing."""
    with mock.patch.object(lease, "check"):
        yield NONE


@contextmanager
def generation_kept() -> Iterator[Mutations]:
    """A lease is taken away without a new generation."""

    def revoke(state: Any) -> None:
        state.holder, state.lease_expires_at = "", None

    def acquire(state: Any, holder: str, now: int) -> None:
        state.generation = max(1, state.generation)
        state.holder = holder
        lease.renew(state, now)

    with mock.patch.object(lease, "revoke", revoke), mock.patch.object(lease, "acquire", acquire):
        yield NONE


@contextmanager
def acknowledged_before_the_commit() -> Iterator[Mutations]:
    """An event is acknowledged while it is in memory only."""
    yield dataclasses.replace(NONE, acknowledge_early=True)


@contextmanager
def tool_run_again_on_attach() -> Iterator[Mutations]:
    """A call whose end nobody saw is simply run again."""

    def begin(found: Record | None, tool: str, generation: int) -> Begun:
        if found is not None and found.result is None:
            return Begun(Step.RUN, Record(tool, generation, found.starts + 1))
        return execution.begin(found, tool, generation)

    with mock.patch.object(hands_journal, "begin", begin):
        yield NONE


@contextmanager
def input_forgotten_at_the_release() -> Iterator[Mutations]:
    """A lease is given back although input has come that nobody else is woken for."""

    def release(step: Any, _tx: Any) -> None:
        lease.release(step.state)
        step.released = True

    with mock.patch.object(append._Step, "_release", release):
        yield NONE


@contextmanager
def second_result_kept() -> Iterator[Mutations]:
    """A call takes every result that comes."""

    def close(_step: Any, _call_id: str, _result_id: str, _known: Any) -> bool:
        return True

    with mock.patch.object(append._Step, "_close", close):
        yield NONE


@contextmanager
def budget_overlooked() -> Iterator[Mutations]:
    """The model is asked whatever it has cost so far."""
    with mock.patch.object(budget, "reached", return_value=False):
        yield NONE


@contextmanager
def checkpoint_incomplete() -> Iterator[Mutations]:
    """A brain that begins from a checkpoint knows of less than one that has read the log."""
    restore = Checkpointing.restore

    def forgetful(*given: Any) -> Any:
        state = restore(*given)
        if state is not None:
            state.transcript = Transcript()
        return state

    with mock.patch.object(Checkpointing, "restore", forgetful):
        yield NONE


@contextmanager
def mcp_call_sent_again() -> Iterator[Mutations]:
    """A call of an MCP tool that may have been sent is taken for one that was not."""

    def failed(_mcp: Any, _call: Any, error: DroverError) -> Any:
        raise error

    with mock.patch.object(McpTools, "_failed", failed):
        yield NONE


@contextmanager
def tools_asked_for_in_vain() -> Iterator[Mutations]:
    """The model is told of what MCP servers have just said, and the log is not."""

    right = listing.compare

    def compare(agent: Any, known: Any, outcomes: Any) -> Found:
        found = right(agent, known, outcomes)
        known.take(found.listing)
        return Found(errors=found.errors)

    with mock.patch.object(server_lists.listing, "compare", compare):
        yield NONE


ALL: dict[str, Callable[[], AbstractContextManager[Mutations]]] = {
    made.__name__: made
    for made in (
        fence_dropped,
        generation_kept,
        acknowledged_before_the_commit,
        tool_run_again_on_attach,
        input_forgotten_at_the_release,
        second_result_kept,
        budget_overlooked,
        checkpoint_incomplete,
        mcp_call_sent_again,
        tools_asked_for_in_vain,
    )
}
