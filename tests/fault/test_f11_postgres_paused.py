"""F11: PostgreSQL paused for a minute: callers are told so in time, and all goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chassis.errors import Reason
from tests.doubles.postgres import Cluster
from tests.doubles.soak import limit, share
from tests.e2e.stack import Stack
from tests.fault.histories.checker import check
from tests.fault.histories.history import Outcome
from tests.fault.paused import CALLERS, Seen, observed
from tests.fault.vitals import MIB, SERVICES

STRICT = share(1) >= 1
"""Whether no other tests take the processor as well."""
TOLD_WITHIN = 8.0 if STRICT else 16.0
"""Seconds until a caller has an answer: the service's patience with its database, and a little."""
READ_WITHIN = 2 * TOLD_WITHIN
"""A gateway has another replica asked for what only reads; well before its deadline of 30 s."""
RED_WITHIN = 5.0 if STRICT else 15.0
BACK_WITHIN = 5.0 if STRICT else 30.0

pytestmark = pytest.mark.timeout(limit(150))


@pytest.fixture(scope="module")
def seen(live_postgres_stack: Stack, breakable: Cluster) -> Iterator[Seen]:
    """What was seen of a pause: one for all that is told of it."""
    live_postgres_stack.wait_ready()
    live_postgres_stack.model.reset()
    yield observed(live_postgres_stack, breakable)
    live_postgres_stack.model.reset()


def test_http_callers_are_told_within_seconds_to_come_again(seen: Seen) -> None:
    met = [answer for answer in seen.met if answer.status != 200]
    assert len(met) >= CALLERS
    assert {answer.path.split("/")[2] for answer in met} == {"sessions", "agents"}
    for answer in met:
        assert answer.status == 503, answer
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.seconds <= (TOLD_WITHIN if answer.verb == "POST" else READ_WITHIN)
    assert seen.unfit == []


def test_grpc_callers_are_told_unavailable_with_retry_info_before_their_deadline(
    seen: Seen,
) -> None:
    assert seen.refusals
    for error, seconds in seen.refusals:
        assert error.reason is Reason.UNAVAILABLE
        assert error.retry_after is not None
        assert seconds <= TOLD_WITHIN


def test_nothing_acknowledged_is_lost_and_the_reader_sees_each_event_once(seen: Seen) -> None:
    assert [str(violation) for violation in check(seen.history)] == []
    assert seen.history.count(Outcome.ACKNOWLEDGED) >= CALLERS
    assert seen.history.readings


def test_readiness_turns_red_and_green_again_and_liveness_stays(seen: Seen) -> None:
    assert seen.alive == {200}
    assert 0 < seen.red_after <= RED_WITHIN
    assert 0 < seen.green_after <= BACK_WITHIN


def test_writes_are_taken_and_turns_in_flight_end_without_a_restart(seen: Seen) -> None:
    assert seen.written_after <= BACK_WITHIN
    assert max(seen.finished_after.values()) <= BACK_WITHIN
    for name in SERVICES:
        assert seen.vitals["after"][name].pid == seen.vitals["before"][name].pid


def test_tool_that_ended_in_the_pause_ran_once_and_its_result_is_kept(seen: Seen) -> None:
    assert seen.tool_runs == 1
    (result,) = seen.tool_results
    assert not result.get("is_error"), result
    assert result["content"][0]["text"].strip() == "done"


def test_threads_memory_and_connections_do_not_grow_while_callers_wait(seen: Seen) -> None:
    for name in SERVICES:
        before, early, late, after = (
            seen.vitals[when][name] for when in ("before", "early", "late", "after")
        )
        assert late.threads <= max(before.threads, early.threads) + 2, name
        assert late.memory <= early.memory + 8 * MIB, name
        assert late.files <= early.files + 8, name
        assert after.threads <= before.threads + 4, name
        assert after.memory <= before.memory + 32 * MIB, name
        assert after.files <= before.files + 8, name


def test_no_service_complains_of_anything_but_the_outage(seen: Seen) -> None:
    assert seen.complaints == []
