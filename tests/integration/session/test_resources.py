"""Repositories of sessions: there for their life, with tokens that no answer holds."""

from __future__ import annotations

import pytest

from chassis.errors import Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.hands.v1 import hands_service_pb2, hands_service_pb2_grpc
from drover.session.v1 import resource_service_pb2 as pb
from drover.session.v1 import session_pb2, session_service_pb2
from drover.session.v1.resource_service_pb2_grpc import ResourceServiceStub
from tests.doubles.session_stack import TOKEN, refusal, running_service, until
from tests.doubles.session_vaults import running_vaults

URL = "https://github.com/acme/tools"
CANARY = "ghp_canary-that-no-answer-holds"


class Hands(hands_service_pb2_grpc.HandsServiceServicer):
    async def Release(self, _request, _context):
        return hands_service_pb2.ReleaseResponse()


@pytest.fixture
async def vaults():
    async with running_vaults() as running:
        yield running


@pytest.fixture
async def service(tmp_path, vaults):
    server = GrpcServer("127.0.0.1:0", Secret(TOKEN), reflection=False)
    server.add(hands_service_pb2_grpc.add_HandsServiceServicer_to_server, Hands())
    await server.start()
    addresses = {"vault_proxy_address": vaults.address, "hands_address": server.address}
    async with running_service(tmp_path, **addresses) as running:
        channel = open_channel(running.address, Secret(TOKEN))
        running.resources = ResourceServiceStub(channel)
        yield running
        await channel.close(None)
    await server.stop(0)


def repository(url=URL, token=CANARY, **fields):
    asked = session_pb2.GithubRepositoryResource(url=url, **fields)
    if token is not None:
        asked.authorization_token = token
    return session_pb2.SessionResource(github_repository=asked)


async def created(service, *given, **fields):
    return await service.create(resources=given, **fields)


def delete(session_id):
    return session_service_pb2.DeleteSessionRequest(session_id=session_id)


def archive(session_id):
    return session_service_pb2.ArchiveSessionRequest(session_id=session_id)


async def test_a_repository_is_answered_as_it_was_given_but_for_its_token(service, vaults):
    branch = session_pb2.Checkout(branch=session_pb2.BranchCheckout(name="feature/x"))
    session = await created(
        service,
        repository(checkout=branch),
        repository("https://github.com/acme/docs", None, mount_path="/workspace/a/docs"),
    )
    first, second = (one.github_repository for one in session.resources)
    assert first.id.startswith("sesrsc_")
    assert (first.url, first.mount_path) == (URL, "/workspace/tools")
    assert first.checkout == branch
    assert first.created_at == first.updated_at == session.created_at
    assert second.mount_path == "/workspace/a/docs"
    assert not second.HasField("checkout")
    assert (await service.get(session.id)).resources == session.resources
    listed = await service.stub.ListSessions(session_service_pb2.ListSessionsRequest())
    answers = [session, await service.get(session.id), listed]
    assert not any(CANARY in str(answer) for answer in answers)
    assert not any(CANARY.encode() in answer.SerializeToString() for answer in answers)
    assert vaults.kept == {(session.id, first.id): CANARY}


async def test_no_session_is_stored_whose_token_was_not(service, vaults):
    vaults.away = True
    assert (await refusal(created(service, repository()))).reason is Reason.UNAVAILABLE
    listed = await service.stub.ListSessions(session_service_pb2.ListSessionsRequest())
    assert not listed.data
    assert await created(service, repository(token=None)), "a public one needs no token"


async def test_a_refused_token_is_not_repeated(service, vaults):
    error = await refusal(created(service, repository(token=f"{CANARY}\r\nhost: evil")))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith("resources.0.authorization_token: ")
    assert CANARY not in str(error)
    assert not vaults.kept


async def test_workers_machines_have_no_repositories(service):
    service.environments.environment.config.self_hosted.SetInParent()
    error = await refusal(created(service, repository()))
    assert (error.rule.http, error.message.partition(":")[0]) == (400, "resources")


async def test_a_vault_that_is_not_there_is_not_found_and_one_that_is_is_answered(service, vaults):
    vaults.vaults = {"vlt_1"}
    error = await refusal(service.create(vault_ids=["vlt_1", "vlt_2"]))
    assert error.rule.http == 404
    session = await service.create(vault_ids=["vlt_1"])
    assert (await service.get(session.id)).vault_ids == ["vlt_1"]


async def test_resources_are_listed_in_pages_and_read_one_by_one(service):
    names = [f"https://github.com/acme/r{number}" for number in range(5)]
    session = await created(service, *(repository(name, None) for name in names))
    every = await service.resources.ListSessionResources(
        pb.ListSessionResourcesRequest(session_id=session.id)
    )
    assert list(every.data) == list(session.resources)
    assert not every.HasField("next_page")
    seen, request = [], pb.ListSessionResourcesRequest(session_id=session.id, limit=2)
    while True:
        page = await service.resources.ListSessionResources(request)
        seen += page.data
        if not page.HasField("next_page"):
            break
        request.page = page.next_page
    assert seen == list(session.resources)
    for one in session.resources:
        asked = pb.GetSessionResourceRequest(
            session_id=session.id, resource_id=one.github_repository.id
        )
        assert (await service.resources.GetSessionResource(asked)).resource == one
    asked.resource_id = "sesrsc_other"
    error = await refusal(service.resources.GetSessionResource(asked))
    assert error.reason is Reason.NOT_FOUND


async def test_a_vault_with_variables_is_refused_where_workers_would_not_get_them(service, vaults):
    vaults.vaults, vaults.variables = {"vlt_1", "vlt_2"}, {"vlt_2"}
    await service.create(vault_ids=["vlt_2"])
    service.environments.environment.config.self_hosted.SetInParent()
    error = await refusal(service.create(vault_ids=["vlt_1", "vlt_2"]))
    assert (error.reason, error.message) == (
        Reason.INVALID_ARGUMENT,
        "vault_ids: vlt_2 has variables",
    )
    assert (await service.create(vault_ids=["vlt_1"])).vault_ids == ["vlt_1"]


async def test_a_rotated_token_takes_the_place_of_the_old_one(service, vaults):
    session = await created(service, repository())
    (before,) = (one.github_repository for one in session.resources)
    request = pb.UpdateSessionResourceRequest(
        session_id=session.id, resource_id=before.id, authorization_token="ghp_new"
    )
    after = (await service.resources.UpdateSessionResource(request)).resource.github_repository
    assert vaults.kept == {(session.id, before.id): "ghp_new"}
    assert (after.id, after.url, after.created_at) == (before.id, before.url, before.created_at)
    assert after.updated_at.ToMicroseconds() > before.updated_at.ToMicroseconds()
    assert (await service.get(session.id)).resources[0].github_repository == after
    request.resource_id = "sesrsc_other"
    error = await refusal(service.resources.UpdateSessionResource(request))
    assert error.reason is Reason.NOT_FOUND
    assert len(vaults.kept) == 1


async def test_an_archived_session_takes_no_token(service, vaults):
    session = await created(service, repository())
    await service.stub.ArchiveSession(archive(session.id))
    await until(lambda: not vaults.kept)
    request = pb.UpdateSessionResourceRequest(
        session_id=session.id,
        resource_id=session.resources[0].github_repository.id,
        authorization_token="ghp_new",
    )
    error = await refusal(service.resources.UpdateSessionResource(request))
    assert error.rule.http == 400
    assert not vaults.kept


async def test_repositories_stay_for_the_sessions_life(service):
    session = await created(service, repository())
    removal = pb.DeleteSessionResourceRequest(
        session_id=session.id, resource_id=session.resources[0].github_repository.id
    )
    error = await refusal(service.resources.DeleteSessionResource(removal))
    assert error.reason is Reason.INVALID_ARGUMENT
    another = repository("https://github.com/acme/docs").github_repository
    for more in (
        {"github_repository": another},
        {"memory_store": session_pb2.MemoryStoreResource(memory_store_id="memstore_1")},
    ):
        request = pb.AddSessionResourceRequest(session_id=session.id, **more)
        error = await refusal(service.resources.AddSessionResource(request))
        assert (error.rule.http, error.message.partition(":")[0]) == (400, "type")
    assert (await service.get(session.id)).resources == session.resources


async def test_secrets_go_with_their_session_however_long_the_vault_proxy_was_away(service, vaults):
    session, other = await created(service, repository()), await created(service, repository())
    vaults.away = True
    await service.stub.DeleteSession(delete(session.id))
    vaults.away = False
    await until(lambda: vaults.forgotten == [("wrkspc_default", session.id)])
    assert [session_id for session_id, _ in vaults.kept] == [other.id]


async def test_a_fork_has_the_repositories_with_their_tokens(service, vaults):
    public = repository("https://github.com/acme/docs", None)
    session = await created(service, repository(), public)
    request = session_service_pb2.ForkSessionRequest(session_id=session.id)
    fork = (await service.stub.ForkSession(request)).session
    assert fork.resources == session.resources
    resource_id = session.resources[0].github_repository.id
    assert vaults.kept == dict.fromkeys(((one.id, resource_id) for one in (session, fork)), CANARY)
    await service.stub.DeleteSession(delete(session.id))
    await until(lambda: vaults.kept == {(fork.id, resource_id): CANARY})


async def test_an_export_tells_of_the_repositories_without_their_tokens(service):
    session = await created(service, repository())
    call = service.stub.ExportSession(
        session_service_pb2.ExportSessionRequest(session_id=session.id)
    )
    records = [record async for response in call for record in response.records]
    assert records[0].session.resources == session.resources
    assert not any(CANARY.encode() in record.SerializeToString() for record in records)
    await service.stub.DeleteSession(delete(session.id))

    async def again():
        yield session_service_pb2.ImportSessionRequest(records=records)

    imported = (await service.stub.ImportSession(again())).session
    assert imported.resources == session.resources
    await service.stub.DeleteSession(delete(session.id))
    records[0].session.resources[0].github_repository.authorization_token = CANARY
    error = await refusal(service.stub.ImportSession(again()))
    assert error.reason is Reason.INVALID_ARGUMENT
