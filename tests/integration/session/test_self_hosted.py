"""Sessions of self-hosted environments, over gRPC and a store of its own."""

from __future__ import annotations

import copy

import pytest

from chassis.errors import Reason
from drover.session.v1 import session_pb2, transfer_pb2
from drover.session.v1 import session_service_pb2 as pb
from tests.doubles.session_events import idle, message, running, tool_use, worker_result
from tests.doubles.session_stack import refusal
from tests.doubles.session_world import kinds


@pytest.fixture
def service(service):
    service.environments.environment.config.self_hosted.SetInParent()
    return service


async def waiting(service):
    """A session that waits for a worker."""
    session = await service.create(message("hello"))
    lease = await service.lease(session.id).open()
    assert lease.opened.session.environment.HasField("self_hosted")
    await lease.append(running(), tool_use("call"), idle("call"), take=2, release=True)
    return session.id


async def test_a_workers_result_is_stored_with_the_log(service):
    session_id = await waiting(service)
    [stored] = await service.emit(session_id, worker_result("call"))
    log = (await service.events(session_id)).data
    assert kinds(log)[-1] == "user_tool_result"
    assert log[-1] == stored
    assert (await service.get(session_id)).status == session_pb2.SESSION_STATUS_RUNNING
    [again] = await service.emit(session_id, worker_result("call", "again"))
    assert again == stored


async def test_what_no_worker_could_mount_is_refused(service):
    request = pb.CreateSessionRequest(environment_id="env_1")
    request.agent.agent.id = "agent_1"
    request.resources.add().github_repository.url = "https://github.com/one/two"
    error = await refusal(service.stub.CreateSession(request))
    assert error.message.startswith("resources: ")


async def exported(service, session_id):
    call = service.stub.ExportSession(pb.ExportSessionRequest(session_id=session_id))
    return [record async for response in call for record in response.records]


async def taken_in(service, records):
    async def stream():
        yield pb.ImportSessionRequest(records=records)

    return (await service.stub.ImportSession(stream())).session


def renamed(records: list[transfer_pb2.SessionRecord]) -> list[transfer_pb2.SessionRecord]:
    """The same session under other ids."""
    records = copy.deepcopy(records)
    records[0].session.session_id = "sesn_other"
    records[0].session.threads[0].thread_id = "sthr_other"
    return records


async def test_an_import_is_refused_where_no_worker_could_poll_for_it(service):
    records = renamed(await exported(service, await waiting(service)))
    records[0].session.environment_id = "env_elsewhere"
    error = await refusal(taken_in(service, records))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith("session.environment_id: its workers poll an environment")
    records[0].session.environment_id = "env_1"
    service.environments.environment.config.cloud.networking.unrestricted.SetInParent()
    error = await refusal(taken_in(service, records))
    assert error.message.startswith("session.environment_id: no workers poll")


async def test_an_imported_session_takes_the_result_it_waits_for(service):
    records = renamed(await exported(service, await waiting(service)))
    session = await taken_in(service, records)
    await service.emit(session.id, worker_result("call"))
    assert kinds((await service.events(session.id)).data)[-1] == "user_tool_result"
