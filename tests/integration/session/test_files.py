"""Files and memory stores of sessions over gRPC: given, added, taken away, and gone in the end."""

from __future__ import annotations

import asyncio

import pytest

from chassis.errors import Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.hands.v1 import hands_service_pb2, hands_service_pb2_grpc
from drover.session.v1 import resource_service_pb2 as pb
from drover.session.v1 import session_pb2
from drover.session.v1 import session_service_pb2 as sessions
from drover.session.v1.resource_service_pb2_grpc import ResourceServiceStub
from tests.doubles.request_keys import answered, named
from tests.doubles.session_events import custom_result, custom_use, idle, message, running
from tests.doubles.session_stack import TOKEN, refusal, running_service, until

UPLOADS = "/mnt/session/uploads"


class Hands(hands_service_pb2_grpc.HandsServiceServicer):
    async def Release(self, _request, _context):
        return hands_service_pb2.ReleaseResponse()


@pytest.fixture
async def service(tmp_path):
    server = GrpcServer("127.0.0.1:0", Secret(TOKEN), reflection=False)
    server.add(hands_service_pb2_grpc.add_HandsServiceServicer_to_server, Hands())
    await server.start()
    async with running_service(tmp_path, hands_address=server.address) as running_one:
        channel = open_channel(running_one.address, Secret(TOKEN))
        running_one.resources = ResourceServiceStub(channel)
        running_one.files.add("file_1")
        running_one.files.add("file_2", "image/png")
        running_one.files.add("file_theirs", workspace="wrkspc_other")
        running_one.memory_stores.add("memstore_1", "User Preferences", "What they like")
        yield running_one
        await channel.close(None)
    await server.stop(0)


def file(file_id="file_1", **fields):
    return session_pb2.SessionResource(file=session_pb2.FileResource(file_id=file_id, **fields))


def attached(store_id="memstore_1", **fields):
    store = session_pb2.MemoryStoreResource(memory_store_id=store_id, **fields)
    return session_pb2.SessionResource(memory_store=store)


def adding(session, resource):
    return pb.AddSessionResourceRequest(session_id=session.id, file=resource.file)


def taking(session, resource_id):
    return pb.DeleteSessionResourceRequest(session_id=session.id, resource_id=resource_id)


def showing(**shown):
    event = message("look")
    for kind, file_id in shown.items():
        getattr(event.user_message.content.add(), kind).source.file.file_id = file_id
    return event


async def listed(service, **fields):
    answer = await service.stub.ListSessions(sessions.ListSessionsRequest(**fields))
    return [one.id for one in answer.data]


async def test_a_session_has_copies_of_files_and_what_its_memory_stores_are(service):
    session = await service.create(
        resources=[file(), file(mount_path="/workspace/a.txt"), attached(access="read_only")]
    )
    first, second, store = session.resources
    assert first.file.mount_path == f"{UPLOADS}/file_1"
    assert second.file.mount_path == f"{UPLOADS}/workspace/a.txt"
    assert first.file.created_at == first.file.updated_at == session.created_at
    assert service.files.of(session.id) == {first.file.file_id, second.file.file_id}
    assert store.memory_store == session_pb2.MemoryStoreResource(
        memory_store_id="memstore_1",
        access="read_only",
        name="User Preferences",
        description="What they like",
        mount_path="/mnt/memory/user-preferences",
    )
    assert (await service.get(session.id)).resources == session.resources
    everything = await service.resources.ListSessionResources(
        pb.ListSessionResourcesRequest(session_id=session.id)
    )
    assert list(everything.data) == list(session.resources)
    one = pb.GetSessionResourceRequest(session_id=session.id, resource_id=second.file.id)
    assert (await service.resources.GetSessionResource(one)).resource == second


async def test_a_session_without_files_and_stores_asks_for_none(service):
    session = await service.create(message())
    await service.emit(session.id, message())
    assert (service.files.asked, service.memory_stores.asked) == ([], 0)


@pytest.mark.parametrize(
    ("asked", "path", "status"),
    [
        (file("file_unknown"), "resources.1.file_id", 404),
        (file("file_theirs"), "resources.1.file_id", 404),
        (attached("memstore_unknown"), "resources.1.memory_store_id", 404),
        (attached("memstore_old"), "resources.1.memory_store_id", 400),
        (file(mount_path="../x"), "resources.1.mount_path", 400),
    ],
)
async def test_what_cannot_be_given_is_refused_by_path(service, asked, path, status):
    service.memory_stores.add("memstore_old", archived=True)
    error = await refusal(service.create(resources=[file(), asked]))
    assert (error.rule.http, error.message.partition(":")[0]) == (status, path)
    assert await listed(service) == []
    assert not any(one.scope.id for one in service.files.files.values())


async def test_workers_machines_have_memory_stores_only(service):
    service.environments.environment.config.self_hosted.SetInParent()
    error = await refusal(service.create(resources=[file()]))
    assert (error.rule.http, error.message.partition(":")[0]) == (400, "resources")
    session = await service.create(resources=[attached()])
    error = await refusal(service.resources.AddSessionResource(adding(session, file())))
    assert error.rule.http == 400
    assert service.files.asked == []


async def test_files_are_gone_at_once_of_a_session_that_never_came_to_be(service):
    # Everything is copied, and then the session is refused as it is stored.
    error = await refusal(service.create(custom_result("call"), resources=[file()]))
    assert error.reason is Reason.INVALID_ARGUMENT
    assert "CopyFiles" in service.files.asked
    await until(lambda: not any(one.scope.id for one in service.files.files.values()))
    assert ("wrkspc_default", "file_1") in service.files.files


async def test_sessions_are_listed_by_their_memory_store(service):
    service.memory_stores.add("memstore_2")
    both = await service.create(resources=[attached(), attached("memstore_2")])
    one = await service.create(resources=[attached()])
    await service.create()
    assert await listed(service, memory_store_id="memstore_1") == [one.id, both.id]
    assert await listed(service, memory_store_id="memstore_2") == [both.id]
    assert await listed(service, memory_store_id="memstore_3") == []


async def test_a_file_is_added_to_a_session_that_exists(service):
    session = await service.create(resources=[file()])
    request = adding(session, file("file_2", mount_path="picture.png"))
    added = (await service.resources.AddSessionResource(request)).resource
    assert added.file.mount_path == f"{UPLOADS}/picture.png"
    assert added.file.id.startswith("sesrsc_")
    assert added.file.created_at.seconds
    assert list((await service.get(session.id)).resources) == [*session.resources, added]
    assert added.file.file_id in service.files.of(session.id)


async def test_of_an_addition_that_comes_many_times_at_once_one_copy_is_left(service):
    session = await service.create()
    add = service.resources.AddSessionResource
    calls = [answered(add, adding(session, file()), named("k")) for _ in range(6)]
    done = await asyncio.gather(*calls)
    assert sum(not replayed for _, replayed in done) == 1
    (kept,) = (await service.get(session.id)).resources
    await until(lambda: service.files.of(session.id) == {kept.file.file_id})


@pytest.mark.parametrize("gone", [(), (0,), (1,), (3,)])
async def test_a_list_leaves_nothing_out_when_a_file_is_taken_away_between_its_pages(service, gone):
    given = [file(), file(mount_path="a"), attached(), file(mount_path="b"), file(mount_path="c")]
    session = await service.create(resources=given)
    request = pb.ListSessionResourcesRequest(session_id=session.id, limit=2)
    first = await service.resources.ListSessionResources(request)
    for index in gone:
        resource_id = session.resources[index].file.id
        await service.resources.DeleteSessionResource(taking(session, resource_id))
    request.page, request.limit = first.next_page, 10
    rest = await service.resources.ListSessionResources(request)
    left = [one for index, one in enumerate(session.resources) if index not in gone]
    assert list(rest.data) == [one for one in left if one not in first.data]
    assert not rest.HasField("next_page")


@pytest.mark.parametrize(
    ("asked", "path", "status"),
    [
        (file("file_unknown"), "file_id", 404),
        (file("file_theirs"), "file_id", 404),
        (file(), "mount_path", 400),
        (file(mount_path="file_1/x"), "mount_path", 400),
        (file(mount_path="a/../b"), "mount_path", 400),
    ],
)
async def test_what_cannot_be_added_is_refused_by_path(service, asked, path, status):
    session = await service.create(resources=[file()])
    before = service.files.of(session.id)
    error = await refusal(service.resources.AddSessionResource(adding(session, asked)))
    assert (error.rule.http, error.message.partition(":")[0]) == (status, path)
    assert (await service.get(session.id)).resources == session.resources
    assert service.files.of(session.id) == before


async def test_a_request_that_is_repeated_adds_one_file_and_takes_one_away(service):
    session = await service.create()
    add, take = service.resources.AddSessionResource, service.resources.DeleteSessionResource
    first, _ = await answered(add, adding(session, file()), named("add"))
    assert await answered(add, adding(session, file()), named("add")) == (first, True)
    assert len((await service.get(session.id)).resources) == 1
    assert len(service.files.of(session.id)) == 1
    request = taking(session, first.resource.file.id)
    gone, _ = await answered(take, request, named("take"))
    assert gone.id == first.resource.file.id
    assert await answered(take, request, named("take")) == (gone, True)
    assert (await refusal(take(request))).reason is Reason.NOT_FOUND
    assert not (await service.get(session.id)).resources


async def test_a_file_that_is_taken_away_is_deleted_be_it_once_the_registry_is_back(service):
    session = await service.create(resources=[file(), file("file_2")])
    first, second = (one.file for one in session.resources)
    service.files.away = True
    await service.resources.DeleteSessionResource(taking(session, first.id))
    assert [one.file for one in (await service.get(session.id)).resources] == [second]
    service.files.away = False
    await until(lambda: service.files.of(session.id) == {second.file_id})
    assert ("wrkspc_default", "file_1") in service.files.files


async def test_an_archived_session_keeps_its_files_and_gets_and_gives_none(service):
    session = await service.create(resources=[file()])
    await service.stub.ArchiveSession(sessions.ArchiveSessionRequest(session_id=session.id))
    add = service.resources.AddSessionResource(adding(session, file("file_2")))
    take = service.resources.DeleteSessionResource(taking(session, session.resources[0].file.id))
    for call in (add, take):
        assert (await refusal(call)).reason is Reason.ARCHIVED
    assert (await service.get(session.id)).resources == session.resources
    assert service.files.of(session.id) == {session.resources[0].file.file_id}


async def test_a_token_is_for_repositories_only(service):
    session = await service.create(resources=[file()])
    request = pb.UpdateSessionResourceRequest(
        session_id=session.id,
        resource_id=session.resources[0].file.id,
        authorization_token="ghp_x",  # no real one
    )
    error = await refusal(service.resources.UpdateSessionResource(request))
    assert (error.rule.http, error.message.partition(":")[0]) == (400, "resource_id")


async def test_files_go_with_their_session_however_long_the_registry_was_away(service):
    session, other = [await service.create(resources=[file()]) for _ in range(2)]
    service.files.add("file_made", scope=session.id)
    service.files.away = True
    await service.stub.DeleteSession(sessions.DeleteSessionRequest(session_id=session.id))
    await until(lambda: "DeleteSessionFiles" in service.files.asked)
    service.files.away = False
    await until(lambda: not service.files.of(session.id))
    assert service.files.of(other.id)
    assert ("wrkspc_default", "file_1") in service.files.files


async def test_a_fork_has_copies_of_its_own_and_the_same_memory_stores(service):
    session = await service.create(resources=[file(), file("file_2"), attached()])
    gone = session.resources[1].file.file_id
    del service.files.files["wrkspc_default", gone]
    service.memory_stores.stores.clear()
    request = sessions.ForkSessionRequest(session_id=session.id)
    fork = (await service.stub.ForkSession(request)).session
    ours, theirs = fork.resources[0].file, session.resources[0].file
    assert (ours.id, ours.mount_path) == (theirs.id, theirs.mount_path)
    assert ours.file_id != theirs.file_id
    assert service.files.of(fork.id) == {ours.file_id}
    assert fork.resources[2] == session.resources[2]
    assert await listed(service, memory_store_id="memstore_1") == [fork.id, session.id]
    await service.stub.DeleteSession(sessions.DeleteSessionRequest(session_id=session.id))
    await until(lambda: not service.files.of(session.id))
    assert service.files.of(fork.id) == {ours.file_id}


async def test_a_fork_does_without_a_file_that_has_expired(service):
    session = await service.create(resources=[file(), file("file_2")])
    records = await export(service, session.id)
    await service.stub.DeleteSession(sessions.DeleteSessionRequest(session_id=session.id))
    await until(lambda: not service.files.of(session.id))
    for number, name in enumerate(("file_1", "file_2")):  # what an export names may be anything
        records[0].session.resources[number].file.file_id = name
    service.files.files["wrkspc_default", "file_1"].expires_at.GetCurrentTime()
    await service.stub.ImportSession(stream(records))
    request = sessions.ForkSessionRequest(session_id=session.id)
    fork = (await service.stub.ForkSession(request)).session
    assert service.files.of(fork.id) == {fork.resources[1].file.file_id}


async def test_an_import_has_what_was_exported_and_takes_no_file_that_is_another_ones(service):
    session = await service.create(resources=[file(), attached()])
    records = await export(service, session.id)
    await service.stub.DeleteSession(sessions.DeleteSessionRequest(session_id=session.id))
    await until(lambda: not service.files.of(session.id))
    records[0].session.resources[0].file.file_id = "file_1"
    again = (await service.stub.ImportSession(stream(records))).session
    assert await export(service, session.id) == records
    assert await listed(service, memory_store_id="memstore_1") == [again.id]
    resource_id = again.resources[0].file.id
    await service.resources.DeleteSessionResource(taking(again, resource_id))
    await service.resources.AddSessionResource(adding(again, file()))
    await until(lambda: service.files.asked.count("ListFiles") == 1)
    assert ("wrkspc_default", "file_1") in service.files.files
    assert "DeleteFile" not in service.files.asked


async def stream(records):
    yield sessions.ImportSessionRequest(records=records)


async def export(service, session_id):
    call = service.stub.ExportSession(sessions.ExportSessionRequest(session_id=session_id))
    return [record async for response in call for record in response.records]


async def test_messages_and_results_show_files_which_are_asked_for_at_once(service):
    session = await service.create(showing(image="file_2", document="file_1"))
    assert service.files.asked == ["ListFiles"]
    await service.emit(session.id, showing(image="file_2"), showing(document="file_1"))
    assert service.files.asked == ["ListFiles"] * 2
    lease = await service.lease(session.id).open()
    await lease.append(running(), custom_use("call"), idle("call"), take=2, release=True)
    result = custom_result("call")
    shown = result.user_custom_tool_result.content.add().document.source.file
    shown.file_id = "file_2"
    error = await refusal(service.emit(session.id, result))
    assert error.message.startswith("events.0.content.1.source.file_id: ")
    shown.file_id = "file_1"
    [stored] = await service.emit(session.id, result)
    assert stored.user_custom_tool_result.content[1].document.source.file.file_id == "file_1"


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        ({"image": "file_unknown"}, 404),
        ({"document": "file_theirs"}, 404),
        ({"image": "file_1"}, 400),
        ({"document": "file_2"}, 400),
    ],
)
async def test_a_file_that_the_model_cannot_be_shown_is_refused_by_path(service, shown, status):
    error = await refusal(service.create(message(), showing(**shown)))
    path = "initial_events.1.content.1.source.file_id"
    assert (error.rule.http, error.message.partition(":")[0]) == (status, path)
    assert await listed(service) == []
    session = await service.create()
    error = await refusal(service.emit(session.id, message(), showing(**shown)))
    assert (error.rule.http, error.message.partition(":")[0]) == (status, path[len("initial_") :])
    assert not (await service.events(session.id)).data


async def test_a_repeated_message_is_answered_whatever_has_become_of_its_file(service):
    session = await service.create()
    request = sessions.EmitEventsRequest(session_id=session.id, events=[showing(document="file_1")])
    first, _ = await answered(service.stub.EmitEvents, request, named("k"))
    service.files.files.clear()
    assert await answered(service.stub.EmitEvents, request, named("k")) == (first, True)
