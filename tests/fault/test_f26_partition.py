"""F26: services cut off from each other. Deadlines fire, and what was cut off goes on once healed.

Brain and session, brain and hands, session and hands, gateway and session; by namespaces, and by
the TCP proxy for delays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.doubles.messages_api import text
from tests.doubles.soak import share
from tests.doubles.tcp_proxy import Way
from tests.e2e.driving import new_session, run_turn, send, stamped, texts
from tests.fault.partitioned import REQUEST_SECONDS, Networks, Seen, observed, running_networks

# More where other tests take the processor as well.
HEALED = 5.0 if share(1) >= 1 else 20.0
PROMPT = 0.5 if share(1) >= 1 else 10.0
UNHINDERED = 2.0 if share(1) >= 1 else 7.5
LEASE = 10.0
SILENT = 8.0
"""Seconds after which a connection on which nothing comes back is given up (chassis.grpc)."""


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Networks]:
    """A fleet in four networks."""
    with running_networks(tmp_path_factory.mktemp("partition")) as made:
        yield made


@pytest.fixture(scope="module")
def seen(networks: Networks) -> Seen:
    """What was seen of a partition: one for all that is told of it."""
    return observed(networks)


def test_session_whose_brain_is_cut_off_gets_another_once_the_lease_is_over(seen: Seen) -> None:
    assert seen.taken_over_after <= LEASE + HEALED
    assert texts(seen.abandoned, "agent.message") == ["thought"]  # nothing of the first brain's
    assert [event.type for event in seen.abandoned].count("session.status_idle") == 1


def test_brain_that_was_cut_off_gives_up_and_works_again(seen: Seen) -> None:
    assert seen.worked_after <= HEALED


def test_tool_result_arrives_once_the_hands_are_reached_again(seen: Seen) -> None:
    assert seen.tool_done_after <= HEALED
    results = [event for event in seen.worked if event.type == "agent.tool_result"]
    assert [event.is_error for event in results] in ([False], [None])
    assert seen.runs == 1


def test_reader_of_a_gateway_that_was_cut_off_is_shown_everything_once(seen: Seen) -> None:
    assert seen.shown_after <= HEALED
    assert seen.shown == seen.log


def test_gateway_that_is_cut_off_answers_within_its_deadline(seen: Seen) -> None:
    for status, seconds in seen.refused:
        assert status in {503, 504}
        assert seconds <= REQUEST_SECONDS + PROMPT


def test_others_do_not_wait_for_who_is_cut_off(seen: Seen) -> None:
    assert seen.deleted_after <= UNHINDERED
    # Unless the brain that is asked first is the one that is cut off: that is found out first.
    assert seen.answered_after <= SILENT + PROMPT


def test_hand_of_a_session_that_was_deleted_meanwhile_goes_once_healed(seen: Seen) -> None:
    assert seen.released_after <= HEALED


@pytest.mark.usefixtures("seen")
def test_stream_over_a_slow_and_then_silent_connection_shows_everything_once(
    networks: Networks,
) -> None:
    fleet, proxy = networks.fleet, networks.to_session
    fleet.model.reset()
    fleet.model.default(lambda _: text("ok", pieces=5))
    with fleet.client() as client:
        session = new_session(client, tools=()).id
        proxy.delay(0.1)
        shown = [event.id for event in stamped(run_turn(client, session, "hello"))]
        proxy.delay(0)
        with client.beta.sessions.events.stream(session) as stream:
            proxy.stall(Way.DOWN)
            sender = fleet.client("gateway-2")
            send(sender, session, "again")
            fleet.until_idle(sender, session, answers=2)
            proxy.flow()
            flowed = time.monotonic()
            for event in stream:
                shown += [event.id] if event.processed_at else []
                if event.type == "session.status_idle":
                    break
            assert time.monotonic() - flowed <= HEALED
        assert shown == [event.id for event in client.beta.sessions.events.list(session)]
