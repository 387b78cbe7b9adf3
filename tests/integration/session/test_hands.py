"""A session's hand goes when the session does."""

from __future__ import annotations

from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.hands.v1 import hands_service_pb2, hands_service_pb2_grpc
from drover.session.v1 import session_service_pb2 as pb
from tests.doubles.session_stack import TOKEN, running_service, until


class Hands(hands_service_pb2_grpc.HandsServiceServicer):
    def __init__(self):
        self.released = []
        self.generations = {}

    async def Release(self, request, _context):
        self.released.append((request.session_id, request.purge))
        self.generations[request.session_id] = request.generation
        return hands_service_pb2.ReleaseResponse()


async def test_no_workspace_is_left_behind_by_a_delete_while_the_hands_were_away(tmp_path):
    async with running_service(tmp_path, hands_address="127.0.0.1:1") as service:
        kept, gone = await service.create(), await service.create()
        await service.stub.ArchiveSession(pb.ArchiveSessionRequest(session_id=kept.id))
        await service.stub.DeleteSession(pb.DeleteSessionRequest(session_id=gone.id))
    hands = Hands()
    server = GrpcServer("127.0.0.1:0", Secret(TOKEN), reflection=False)
    server.add(hands_service_pb2_grpc.add_HandsServiceServicer_to_server, hands)
    await server.start()
    async with running_service(tmp_path, hands_address=server.address) as service:
        await until(lambda: len(set(hands.released)) == 2)
        another = await service.create()
        lease = await service.lease(another.id).open()
        await service.stub.DeleteSession(pb.DeleteSessionRequest(session_id=another.id))
        await until(lambda: len(set(hands.released)) == 3)
    await server.stop(0)
    assert hands.generations[another.id] == lease.generation
    assert set(hands.released) == {(kept.id, False), (gone.id, True), (another.id, True)}
