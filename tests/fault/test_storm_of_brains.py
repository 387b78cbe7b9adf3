"""A thousand turns with tools while brains are killed and stopped at random (P1 to P4)."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.doubles.seeds import chosen_seed
from tests.doubles.soak import limit, share
from tests.e2e.driving import history, texts
from tests.e2e.stack import Stack, running_stack
from tests.fault.spree import Plan, Spree, follow_the_plan
from tests.fault.vitals import Complaints

TURNS = 1000 if share(1) >= 1 else 80
BRAINS = ("brain-1", "brain-2", "brain-3")


@pytest.fixture(scope="module")
def spree_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Three brains, of which one may be stopped and one dead."""
    with running_stack(tmp_path_factory.mktemp("spree"), brains=len(BRAINS)) as stack:
        yield stack


@pytest.mark.timeout(limit(180))
def test_every_turn_ends_and_every_command_ran_once_or_is_reported_unknown(
    spree_stack: Stack,
) -> None:
    spree = Spree(spree_stack, chosen_seed(), TURNS, BRAINS)
    complaints = Complaints(spree_stack.data / "logs")
    spree_stack.model.default(follow_the_plan)
    counts: Counter[str] = Counter()
    with spree_stack.client() as client:
        asyncio.run(spree.run(client))
        for session in spree.sessions:
            log = history(client, session)
            check_log(log, spree.sent[session], spree.seen[session], spree.plans[session])
            marks = spree_stack.workspace(session) / "marks"
            left = marks.read_text().split() if marks.exists() else []
            counts += check_commands(log, left, spree.plans[session])
    assert complaints.found() == []
    told = {"turns": spree.turns, "seconds": round(spree.seconds, 1), **counts}
    sys.stdout.write(f"{told} {spree.deaths}\n")
    assert spree.deaths.killed > spree.turns / 20


def check_log(log: list[Any], sent: list[str], seen: list[str], plans: list[Plan]) -> None:
    """Nothing acknowledged is lost, doubled or out of order, and every turn was answered."""
    ids = [event.id for event in log]
    assert len(set(ids)) == len(ids)
    assert [event.id for event in log if event.type == "user.message"] == sent
    assert seen == ids
    # A brain that was stopped may find its connection to the model broken, and tries again.
    errors = [event.error for event in log if event.type == "session.error"]
    assert [error for error in errors if error.retry_status.type != "retrying"] == []
    ends = [event.stop_reason.type for event in log if event.type == "session.status_idle"]
    assert set(ends) == {"end_turn"}
    assert texts(log, "agent.message") == [f"done {one.name}" for one in plans]
    starts = [event.id for event in log if event.type == "span.model_request_start"]
    closed = [e.model_request_start_id for e in log if e.type == "span.model_request_end"]
    assert starts == closed


def check_commands(log: list[Any], left: list[str], plans: list[Plan]) -> Counter[str]:
    """Every command has one result, and ran once unless its result says that this is not known."""
    marks = [mark for one in plans for mark in one.marks]
    calls = {e.id: e.input["command"].split()[1] for e in log if e.type == "agent.tool_use"}
    assert sorted(calls.values()) == sorted(marks)
    results = [event for event in log if event.type == "agent.tool_result"]
    assert sorted(event.tool_use_id for event in results) == sorted(calls)
    ran, unknown = Counter(left), 0
    for result in results:
        mark, shown = calls[result.tool_use_id], result.content[0].text
        if result.is_error:
            assert "unknown" in shown, shown
            assert ran[mark] <= 1
            unknown += 1
        else:
            assert ran[mark] == 1, mark
            assert shown.startswith(f"{mark} ran")
    assert set(ran) <= set(marks)
    closed = sum(e.type == "span.model_request_end" and bool(e.is_error) for e in log)
    return Counter(commands=len(calls), unknown=unknown, closed_requests=closed)
