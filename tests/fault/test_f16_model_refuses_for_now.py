"""F16: a model that answers 429, 529 or 500: asked again when it said, shown, and not for ever.

The answers are those of the double over HTTP. Waits are computed and not waited for, but for one.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic

import pytest

from chassis.secret import Secret
from drover.event.v1.session_event_pb2 import (
    RETRY_STATUS_TYPE_EXHAUSTED,
    RETRY_STATUS_TYPE_RETRYING,
)
from services.brain.loop.retry import RetryPolicy
from services.brain.loop.sync_points import Point
from services.brain.model.anthropic_client import AnthropicModelClient
from services.brain.model.platform import AnthropicApi
from tests.doubles.messages_api import MessagesApi, Reply, Request, error, running, text
from tests.integration.brain import conftest
from tests.integration.brain.conftest import Rig
from tests.integration.brain.test_recovery import kill_at

rig = conftest.rig

ATTEMPTS = 8
STATUSES = {
    429: "model_rate_limited_error",
    500: "model_request_failed_error",
    529: "model_overloaded_error",
}


@dataclass(frozen=True)
class Impatient(RetryPolicy):
    """Notes how long it would wait."""

    waits: list[float] = field(default_factory=list)

    def delay(self, failures: int, retry_after: float | None) -> float:
        self.waits.append(super().delay(failures, retry_after))
        return 0.0


def impatient(seed: int = 16) -> Impatient:
    return Impatient(attempts=ATTEMPTS, chance=random.Random(seed))  # noqa: S311  # a test's


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with running() as double:
        yield double


@pytest.fixture
async def real(rig: Rig, api: MessagesApi) -> AsyncIterator[Rig]:
    """The rig, with the client that production uses."""
    platform = AnthropicApi(api_key=Secret("key"), base_url=api.base_url)
    async with AnthropicModelClient(platform) as client:
        rig.model = client  # type: ignore[assignment]  # the port is all that is used of it
        yield rig


def _in(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize("status", sorted(STATUSES))
@pytest.mark.parametrize("form", ["seconds", "milliseconds", "date", "none"])
async def test_f16_what_the_server_asks_is_waited_for_with_jitter_and_shown(
    real: Rig, api: MessagesApi, status: int, form: str
) -> None:
    asked: dict[str, Reply] = {
        "seconds": error(status, retry_after=40),
        "milliseconds": error(status, retry_after_ms=40_000),
        "date": error(status, retry_after=_in(41)),
        "none": error(status),
    }
    api.script(asked[form], text("Back again."))
    session, policy = real.session(), impatient()
    session.message("Hi")
    await real.wake(session, await real.brain(retry=policy))
    (wait,) = policy.waits
    if form == "none":
        assert 0 <= wait <= policy.base
    else:
        # A date is whole seconds, and some time has gone by since it was made.
        assert (30 if form == "date" else 40) <= wait <= 46
    assert len(api.requests) == 2
    assert session.kinds.count("session_status_rescheduled") == 1
    assert session.kinds.count("session_thread_status_rescheduled") == 1
    (told,) = session.of("session_error")
    assert told.session_error.error.HasField(STATUSES[status])
    assert told.session_error.error.retry_status.type == RETRY_STATUS_TYPE_RETRYING
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


@pytest.mark.parametrize("status", sorted(STATUSES))
async def test_f16_attempts_are_bounded_and_the_next_message_begins_a_new_turn(
    real: Rig, api: MessagesApi, status: int
) -> None:
    api.default(lambda _request: error(status))
    session, policy = real.session(), impatient()
    session.message("Hi")
    brain = await real.brain(retry=policy)
    await real.wake(session, brain)
    assert len(api.requests) == ATTEMPTS
    assert session.kinds.count("session_status_rescheduled") == ATTEMPTS - 1
    retries = [told.session_error.error.retry_status.type for told in session.of("session_error")]
    assert retries == [RETRY_STATUS_TYPE_RETRYING] * (ATTEMPTS - 1) + [RETRY_STATUS_TYPE_EXHAUSTED]
    assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")
    assert all(wait <= policy.base * 2**tried for tried, wait in enumerate(policy.waits))
    api.default(lambda _request: text("Here I am."))
    session.message("Hello?")
    await real.wake(session, brain)
    assert session.kinds.count("agent_message") == 1
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_f16_failures_in_a_row_are_counted_anew_after_a_success(
    real: Rig, api: MessagesApi
) -> None:
    failing = [error(529)] * (ATTEMPTS - 1)
    api.script(*failing, text("One."), *failing, text("Two."))
    session, brain = real.session(), await real.brain(retry=impatient())
    for number in range(2):
        session.message(f"Message {number}")
        await real.wake(session, brain)
    assert session.kinds.count("agent_message") == 2


async def test_f16_a_brain_that_takes_over_waits_for_as_long_as_was_asked(
    real: Rig, api: MessagesApi
) -> None:
    api.script(error(529, retry_after=40), text("Back again."))
    session, policy = real.session(), impatient()
    session.message("Hi")
    assert await kill_at(real, session, Point.BEFORE_RETRY, 1)
    session.revoke()
    await real.wake(session, await real.brain(retry=policy))
    (wait,) = policy.waits
    assert 40 <= wait <= 46
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")


async def test_f16_the_wait_is_kept(real: Rig, api: MessagesApi) -> None:
    asked_at: list[float] = []

    def answer(_request: Request) -> Reply:
        asked_at.append(monotonic())
        return error(429, retry_after_ms=120) if len(asked_at) == 1 else text("Back again.")

    api.default(answer)
    session = real.session()
    session.message("Hi")
    await real.wake(session, await real.brain(retry=RetryPolicy(base=0.0)))
    assert asked_at[1] - asked_at[0] >= 0.12


def test_f16_those_who_are_told_the_same_time_come_back_spread_over_a_tenth_of_it() -> None:
    waits = sorted(
        RetryPolicy(chance=random.Random(seed)).delay(1, 60.0)  # noqa: S311  # a test's
        for seed in range(200)
    )
    assert waits[0] >= 60.0
    assert waits[-1] <= 66.0
    assert waits[-1] - waits[0] > 5.0
    assert len(set(waits)) == len(waits)


def test_f16_a_server_that_asks_for_an_hour_is_asked_again_after_minutes() -> None:
    policy = RetryPolicy(chance=random.Random(1))  # noqa: S311  # a test's
    assert policy.longest_asked <= policy.delay(1, 3_600.0) <= 1.1 * policy.longest_asked
