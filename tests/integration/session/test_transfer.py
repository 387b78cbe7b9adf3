"""Exporting and importing over gRPC: all of a session, or nothing."""

from __future__ import annotations

import asyncio
import copy

import grpc
import pytest

from chassis.errors import Reason
from chassis.grpc.status import from_rpc_error
from drover.session.v1 import lease_pb2, session_pb2, transfer_pb2
from drover.session.v1 import session_service_pb2 as pb
from services.session.domain import importing
from services.session.domain.copies import STEP_EVENTS
from services.session.store.copies import SqlCopyStore
from services.session.store.schema import SCHEMA
from storage import open_database
from storage.migrate import migrate
from tests.doubles.session_events import custom_result, custom_use, idle, message, running, said
from tests.doubles.session_stack import (
    AGENT_ID,
    echo_turns,
    refusal,
    running_service,
    until,
)
from tests.doubles.session_world import WORKSPACE, ManualClock, kinds

LONG = 2 * STEP_EVENTS + 100


@pytest.fixture(params=["sqlite", "postgres"])
async def elsewhere(request, tmp_path):
    """Another installation, with a brain, on either engine."""
    (tmp_path / "elsewhere").mkdir()
    more = {}
    if request.param == "postgres":
        more["database_url"] = request.getfixturevalue("postgres").new_database()
        await migrate(more["database_url"], SCHEMA)
    async with running_service(tmp_path / "elsewhere", works=[echo_turns], **more) as running:
        yield running


async def export(service, session_id):
    call = service.stub.ExportSession(pb.ExportSessionRequest(session_id=session_id))
    return [record async for response in call for record in response.records]


def messages(records, size=100):
    for start in range(0, len(records), size):
        yield pb.ImportSessionRequest(records=records[start : start + size])


async def take_in(service, records, size=100):
    async def stream():
        for one in messages(records, size):
            yield one

    return (await service.stub.ImportSession(stream())).session


async def worked(service, turns=1, *texts):
    """A session with turns behind it; the first one says all the texts."""
    session = await service.create(message("hello"), title="Flock", metadata={"a": "b", "c": "d"})
    lease = await service.lease(session.id).open()
    for number in range(turns):
        if number:
            await service.emit(session.id, message("again"))
        await lease.append(running(), take=lease_pb2.TAKE_INPUT_NEXT)
        for start in range(0, len(texts), 500):
            await lease.append(*map(said, texts[start : start + 500]))
        await lease.append(said("hi"), idle())
    await lease.append(release=True)
    return await service.get(session.id)


async def sessions(service):
    request = pb.ListSessionsRequest(include_archived=True)
    return [session.id for session in (await service.stub.ListSessions(request)).data]


async def test_a_session_is_the_same_elsewhere_and_goes_on_there(service, elsewhere):
    session = await worked(service, 2)
    records = await export(service, session.id)
    there = await take_in(elsewhere, records)
    assert await export(elsewhere, session.id) == records
    session.stats.duration_seconds = there.stats.duration_seconds
    assert there == session
    assert await sessions(elsewhere) == [session.id]
    before = (await elsewhere.events(session.id)).data
    assert list(before) == list((await service.events(session.id)).data)
    await elsewhere.emit(session.id, message("and now"))
    await until_idle(elsewhere, session.id)
    after = (await elsewhere.events(session.id)).data
    assert list(after[: len(before)]) == list(before)
    assert after[-2].agent_message.content[0].text.text == "and now"


async def until_idle(service, session_id):
    async with asyncio.timeout(30):
        while (await service.get(session_id)).status != session_pb2.SESSION_STATUS_IDLE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_calls_that_wait_are_answered_elsewhere(service, elsewhere):
    session = await service.create(message("hello"))
    lease = await service.lease(session.id).open()
    await lease.append(running(), custom_use("call"), idle("call"), take=2, release=True)
    await take_in(elsewhere, await export(service, session.id))
    error = await refusal(elsewhere.emit(session.id, message("hm")))
    assert "waits for the answers to 1 tool call" in error.message
    await elsewhere.emit(session.id, custom_result("call"))
    await until(lambda: elsewhere.brains[0].woken == [session.id])


async def test_a_long_log_goes_in_pieces_and_is_seen_only_once_it_is_whole(service, elsewhere):
    session = await worked(service, 1, *(f"text {n}" for n in range(LONG)))
    records = await export(service, session.id)
    assert len(records) == LONG + 4 + 2
    call = elsewhere.stub.ImportSession()
    for one in messages(records[:-1]):
        await call.write(one)
        assert await sessions(elsewhere) == []
    missing = await refusal(elsewhere.get(session.id))
    assert missing.reason is Reason.NOT_FOUND
    await call.write(pb.ImportSessionRequest(records=records[-1:]))
    await call.done_writing()
    assert (await call).session.id == session.id
    assert await export(elsewhere, session.id) == records


async def test_an_import_that_is_cut_off_leaves_nothing_and_can_be_repeated(service, elsewhere):
    session = await worked(service, 1, *(f"text {n}" for n in range(LONG)))
    records = await export(service, session.id)
    call = elsewhere.stub.ImportSession()
    for one in messages(records[:-1]):
        await call.write(one)
    call.cancel()
    error = await refusal(take_in(elsewhere, records[:-1]))
    # Until what was left is cleared away, or because the end is missing.
    assert error.reason in {Reason.CONFLICT, Reason.INVALID_ARGUMENT}
    async with asyncio.timeout(30):
        while error.reason is Reason.CONFLICT:
            error = await refusal(take_in(elsewhere, records[:-1]))
    assert error.message == "records: the export is not whole: its end is missing"
    assert await sessions(elsewhere) == []
    await take_in(elsewhere, records)
    assert await export(elsewhere, session.id) == records


async def test_a_session_that_is_there_is_a_conflict_until_it_is_deleted(service):
    session = await worked(service)
    records = await export(service, session.id)
    error = await refusal(take_in(service, records))
    assert error.reason is Reason.CONFLICT
    assert error.message == f"session {session.id} exists already"
    assert await export(service, session.id) == records
    await service.stub.DeleteSession(pb.DeleteSessionRequest(session_id=session.id))
    await take_in(service, records, size=1)
    assert await export(service, session.id) == records


async def test_a_session_that_runs_is_exported_and_refused(service, elsewhere):
    session = await service.create(message("hello"))
    records = await export(service, session.id)
    assert records[0].session.status == session_pb2.SESSION_STATUS_RUNNING
    assert records[1].waiting.user_message.content[0].text.text == "hello"
    error = await refusal(take_in(elsewhere, records))
    assert error.reason is Reason.SESSION_RUNNING
    assert await sessions(elsewhere) == []


async def test_records_in_the_wrong_order_are_refused(service, elsewhere):
    session = await worked(service)
    head, *log, end = await export(service, session.id)
    waits = transfer_pb2.SessionRecord(waiting=message("later", "w"))
    wrong = {
        "records: the first record is the session without its events": [
            [], [end], [*log, end],
        ],
        "records: the session comes first, then its log, then its inbox": [
            [head, head, *log, end], [head, waits, *log, end],
        ],
        "records: nothing comes behind the end": [[head, *log, end, waits], [head, *log, end, end]],
        "records: the export is not whole: its end is missing": [[head], [head, *log]],
    }  # fmt: skip
    for text, attempts in wrong.items():
        for records in attempts:
            error = await refusal(take_in(elsewhere, records))
            assert (error.reason, error.message) == (Reason.INVALID_ARGUMENT, text)
    broken = transfer_pb2.SessionRecord()
    error = await refusal(take_in(elsewhere, [head, broken]))
    assert error.message.startswith("records.1: one of session, event, waiting, end")
    assert await sessions(elsewhere) == []


async def test_the_rules_of_a_snapshot_are_checked_and_name_the_field(service, elsewhere):
    session = await worked(service)
    records = await export(service, session.id)
    snapshot = records[0].session
    snapshot.session_id = "../../etc"
    error = await refusal(take_in(elsewhere, records))
    assert error.message.startswith("records.0.session.session_id: must match")
    snapshot.session_id = session.id
    snapshot.metadata["x" * 65] = "too long"
    error = await refusal(take_in(elsewhere, records))
    assert error.message.startswith("records.0.session.metadata.x")
    del snapshot.metadata["x" * 65]
    snapshot.threads[0].thread_id = "sesn_1"
    error = await refusal(take_in(elsewhere, records))
    assert error.message.startswith("records.0.session.threads.0.thread_id: must match")


async def test_a_deleted_session_ends_its_export(service):
    session = await worked(service, 1, *(f"{n}" * 2000 for n in range(LONG)))
    call = service.stub.ExportSession(pb.ExportSessionRequest(session_id=session.id))
    await call.read()
    await service.stub.DeleteSession(pb.DeleteSessionRequest(session_id=session.id))

    async def rest():
        while await call.read() is not grpc.aio.EOF:
            pass

    assert (await refusal(rest())).reason is Reason.NOT_FOUND


async def test_the_agent_of_an_imported_session_is_its_own(service, elsewhere):
    session = await worked(service)
    records = await export(service, session.id)
    records[0].session.agent.name = "Somebody"
    there = await take_in(elsewhere, records)
    assert (there.agent.id, there.agent.name) == (AGENT_ID, "Somebody")
    assert kinds((await elsewhere.events(session.id)).data)[-1] == "session_status_idle"


async def test_of_two_imports_at_once_one_is_made(service, elsewhere):
    session = await worked(service, 1, *(f"text {n}" for n in range(LONG)))
    records = await export(service, session.id)
    results = await asyncio.gather(
        *(take_in(elsewhere, copy.deepcopy(records)) for _ in range(4)), return_exceptions=True
    )
    refused = [from_rpc_error(one).reason for one in results if isinstance(one, grpc.RpcError)]
    assert refused == [Reason.CONFLICT] * 3
    assert await export(elsewhere, session.id) == records


async def test_what_a_killed_process_left_half_way_is_cleared_away(service, tmp_path):
    session = await worked(service)
    records = await export(service, session.id)
    folder = tmp_path / "killed"
    folder.mkdir()
    database = await open_database(f"sqlite:///{folder / 'session.db'}", SCHEMA)
    steps = SqlCopyStore(database, ManualClock())  # whose time is long past
    begun = await steps.step(lambda tx: importing.begin(records[0].session, WORKSPACE, tx.now()))
    await steps.step(lambda tx: tx.begin(begun.state, begun.details, begun.threads))
    await database.close()
    async with running_service(folder) as restarted, asyncio.timeout(30):
        while True:
            try:
                await take_in(restarted, records)
                break
            except grpc.RpcError as error:
                assert "was left half way" in str(error)  # noqa: PT017
        assert await export(restarted, session.id) == records
