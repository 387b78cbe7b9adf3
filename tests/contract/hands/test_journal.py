"""What every journal promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from chassis.clock import SystemClock
from chassis.context import DEFAULT_WORKSPACE, CallContext, call_context
from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import VERDICT_CANCELLED, VERDICT_OUTCOME_UNKNOWN
from services.hands.domain import execution
from services.hands.domain.execution import Step
from services.hands.domain.journal import Journal
from services.hands.store.journal import SqlJournal
from services.hands.store.schema import SCHEMA
from storage import open_database
from tests.doubles.databases import opened
from tests.doubles.hands_journal import MemoryJournal
from tests.doubles.hands_waiting import eventually

RESULT = execution.ran((), timedelta(seconds=1), is_error=False, cancelled=False)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    if request.param == "memory":
        yield MemoryJournal()
        return
    on_sqlite = request.param == "sqlite"
    cluster = None if on_sqlite else request.getfixturevalue("postgres")
    async with opened(SCHEMA, tmp_path, cluster) as [database]:
        yield SqlJournal(database, SystemClock())


async def test_call_begins_once_and_is_answered_with_its_result(journal: Journal) -> None:
    begun = await journal.begin("s", "c", 1, "bash")
    assert begun.step is Step.RUN
    await journal.finish("s", "c", RESULT)
    again = await journal.begin("s", "c", 1, "bash")
    assert (again.step, again.record.result, again.replayed) == (Step.ANSWER, RESULT, True)


async def test_calls_of_sessions_do_not_meet(journal: Journal) -> None:
    await journal.begin("s", "c", 1, "bash")
    await journal.finish("s", "c", RESULT)
    assert (await journal.begin("other", "c", 1, "bash")).step is Step.RUN
    assert (await journal.begin("s", "other", 1, "bash")).step is Step.RUN


async def test_call_whose_end_was_not_seen_is_recorded_unknown(journal: Journal) -> None:
    await journal.begin("s", "c", 1, "bash")
    first = await journal.begin("s", "c", 2, "bash")
    second = await journal.begin("s", "c", 3, "bash")
    assert first.record.result is not None
    assert first.record.result.verdict == VERDICT_OUTCOME_UNKNOWN
    assert second.record.result == first.record.result
    assert (first.replayed, second.replayed) == (False, True)


async def test_reading_whose_end_was_not_seen_starts_once_more(journal: Journal) -> None:
    steps = [(await journal.begin("s", "c", 1, "grep")).step for _ in range(3)]
    assert steps == [Step.RUN, Step.RUN, Step.ANSWER]


async def test_it_is_known_which_tools_a_session_has_started(journal: Journal) -> None:
    assert not await journal.ran("s", "bash", besides="c")
    await journal.begin("s", "c", 1, "bash")
    await journal.begin("s", "r", 1, "read")
    await journal.begin("other", "o", 1, "bash")
    await journal.cancel("s", 1, ["never seen"])
    assert not await journal.ran("s", "bash", besides="c")
    assert await journal.ran("s", "bash", besides="next")
    await journal.forget("s", "c")
    assert not await journal.ran("s", "bash", besides="next")


async def test_first_result_stays(journal: Journal) -> None:
    await journal.begin("s", "c", 1, "bash")
    await journal.finish("s", "c", RESULT)
    await journal.finish("s", "c", execution.cancelled())
    assert (await journal.begin("s", "c", 1, "bash")).record.result == RESULT


async def test_start_that_is_taken_back_leaves_nothing(journal: Journal) -> None:
    await journal.begin("s", "c", 1, "bash")
    await journal.forget("s", "c")
    assert (await journal.begin("s", "c", 1, "bash")).record.starts == 1


async def test_result_is_not_taken_back(journal: Journal) -> None:
    await journal.begin("s", "c", 1, "bash")
    await journal.finish("s", "c", RESULT)
    await journal.forget("s", "c")
    assert (await journal.begin("s", "c", 1, "bash")).step is Step.ANSWER


async def test_cancelled_calls_that_were_never_seen_never_run(journal: Journal) -> None:
    await journal.cancel("s", 1, ["a", "b", "a"])
    for call_id in ("a", "b"):
        begun = await journal.begin("s", call_id, 1, "bash")
        assert begun.step is Step.ANSWER
        assert begun.record.result is not None
        assert begun.record.result.verdict == VERDICT_CANCELLED


async def test_cancel_changes_no_record(journal: Journal) -> None:
    await journal.begin("s", "running", 1, "bash")
    await journal.begin("s", "done", 1, "bash")
    await journal.finish("s", "done", RESULT)
    await journal.cancel("s", 1, ["running", "done"])
    await journal.finish("s", "running", RESULT)
    for call_id in ("running", "done"):
        assert (await journal.begin("s", call_id, 1, "bash")).record.result == RESULT


async def test_older_generation_does_nothing_at_all(journal: Journal) -> None:
    await journal.fence("s", 5)
    for attempt in (
        lambda: journal.begin("s", "c", 4, "bash"),
        lambda: journal.begin("s", "c", 0, "bash"),
        lambda: journal.cancel("s", 4, ["c"]),
        lambda: journal.fence("s", 4),
    ):
        with pytest.raises(DroverError) as refused:
            await attempt()
        assert refused.value.reason is Reason.LEASE_LOST
    begun = await journal.begin("s", "c", 5, "bash")
    assert (begun.step, begun.record.starts) == (Step.RUN, 1)


async def test_a_session_is_its_own_workspaces_alone_whatever_the_generation(
    journal: Journal,
) -> None:
    assert await journal.owner("s") == ""
    await journal.begin("s", "c", 5, "bash")
    assert await journal.owner("s") == DEFAULT_WORKSPACE
    with call_context(CallContext("wrkspc_other")):
        for attempt in (
            lambda: journal.begin("s", "c", 9, "bash"),
            lambda: journal.cancel("s", 9, ["d"]),
            lambda: journal.fence("s", 9),
            lambda: journal.end("s", 9),
        ):
            with pytest.raises(DroverError) as refused:
                await attempt()
            assert refused.value.reason is Reason.NOT_FOUND
    assert (await journal.begin("s", "d", 5, "bash")).step is Step.RUN


async def test_every_request_with_a_generation_raises_the_fence(journal: Journal) -> None:
    await journal.begin("s", "c", 2, "bash")
    with pytest.raises(DroverError):
        await journal.fence("s", 1)
    await journal.cancel("s", 3, ["d"])
    with pytest.raises(DroverError):
        await journal.begin("s", "e", 2, "bash")
    await journal.fence("s", 4)
    with pytest.raises(DroverError):
        await journal.cancel("s", 3, ["f"])


async def test_what_is_begun_once_a_fence_is_told_taken_is_durable_after_it(
    journal: Journal,
) -> None:
    loop, order = asyncio.get_running_loop(), []
    begun: list[asyncio.Task[None]] = []

    async def begin() -> None:
        await journal.begin("s", "c", 5, "bash")
        order.append("begun")

    def taken() -> None:
        loop.call_soon_threadsafe(lambda: begun.append(loop.create_task(begin())))
        order.append("taken")

    await journal.fence("s", 5, taken)
    order.append("kept")
    await eventually(lambda: len(order) == 3)
    assert order == ["taken", "kept", "begun"]
    await asyncio.gather(*begun)


async def test_fence_that_is_refused_is_never_told_taken(journal: Journal) -> None:
    await journal.fence("s", 5)
    told: list[int] = []
    with pytest.raises(DroverError) as refused:
        await journal.fence("s", 4, lambda: told.append(4))
    assert (refused.value.reason, told) == (Reason.LEASE_LOST, [])


async def test_no_lease_passes_while_none_has_been_seen(journal: Journal) -> None:
    assert (await journal.begin("s", "c", 0, "bash")).step is Step.RUN
    assert (await journal.begin("s", "d", 0, "bash")).step is Step.RUN
    await journal.fence("s", 1)
    with pytest.raises(DroverError):
        await journal.begin("s", "e", 0, "bash")


async def test_purged_session_is_forgotten_with_its_fence(journal: Journal) -> None:
    await journal.begin("s", "c", 5, "bash")
    await journal.begin("other", "c", 5, "bash")
    await journal.purge("s", 0)
    assert (await journal.begin("s", "c", 0, "bash")).record.starts == 1
    with pytest.raises(DroverError):
        await journal.fence("other", 1)


async def test_session_that_has_ended_takes_nothing_of_its_leases(journal: Journal) -> None:
    await journal.begin("s", "c", 5, "bash")
    await journal.end("s", 7)
    await journal.end("s", 7)  # as often as it is asked
    for generation in (0, 5, 7):
        with pytest.raises(DroverError) as refused:
            await journal.begin("s", "d", generation, "bash")
        assert refused.value.reason is Reason.LEASE_LOST


async def test_session_that_is_gone_takes_nothing_of_its_leases(journal: Journal) -> None:
    await journal.begin("s", "c", 5, "bash")
    await journal.end("s", 7)
    await journal.purge("s", 7)
    await journal.purge("s", 7)
    for generation in (0, 5, 7):
        with pytest.raises(DroverError) as refused:
            await journal.fence("s", generation)
        assert refused.value.reason is Reason.LEASE_LOST
    assert (await journal.begin("s", "c", 8, "bash")).record.starts == 1  # another one, imported
    with pytest.raises(DroverError):
        await journal.end("s", 6)


async def test_session_that_is_gone_leaves_nothing_however_late_it_is_released(
    journal: Journal,
) -> None:
    """As the release at its archival may be, which was put off while the hands were away."""
    await journal.begin("s", "c", 5, "bash")
    await journal.end("s", 7)
    await journal.purge("s", 7)
    await journal.end("s", 7)
    assert await journal.owner("s") == ""
    with pytest.raises(DroverError):
        await journal.end("s", 6)
    with pytest.raises(DroverError):
        await journal.fence("s", 7)


async def test_calls_that_race_a_purge_leave_nothing_behind(journal: Journal) -> None:
    """Whichever comes first: the call is forgotten with the others, or refused."""

    async def purge() -> None:
        await journal.end("s", 5)
        await journal.purge("s", 5)

    calls = [journal.begin("s", f"c{number}", 5, "grep") for number in range(10)]
    outcomes = await asyncio.gather(*calls[:5], purge(), *calls[5:], return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert all(isinstance(one, DroverError) and one.reason is Reason.LEASE_LOST for one in refused)
    for number in range(10):
        assert (await journal.begin("s", f"c{number}", 6, "grep")).record.starts == 1


async def test_result_and_fence_outlive_the_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'hands.db'}"
    database = await open_database(url, SCHEMA)
    first = SqlJournal(database, SystemClock())
    await first.begin("s", "done", 7, "bash")
    await first.finish("s", "done", RESULT)
    await first.begin("s", "running", 7, "bash")
    await database.close()
    database = await open_database(url, SCHEMA)
    second = SqlJournal(database, SystemClock())
    assert (await second.begin("s", "done", 7, "bash")).record.result == RESULT
    unknown = (await second.begin("s", "running", 7, "bash")).record.result
    assert unknown is not None
    assert unknown.verdict == VERDICT_OUTCOME_UNKNOWN
    with pytest.raises(DroverError):
        await second.fence("s", 6)
    await database.close()
