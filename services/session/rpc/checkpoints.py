"""CheckpointService, and what OpenLease answers of it."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

from drover.session.v1 import checkpoint_pb2
from drover.session.v1 import checkpoint_service_pb2 as pb
from drover.session.v1.checkpoint_service_pb2_grpc import CheckpointServiceServicer
from services.session.domain.checkpoints import Checkpoint
from services.session.rpc.parts import ref

if TYPE_CHECKING:
    from services.session.domain.checkpoints import CheckpointStore


class CheckpointRpc(CheckpointServiceServicer):
    """CheckpointService."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store

    async def SaveCheckpoint(
        self, request: pb.SaveCheckpointRequest, _context: object
    ) -> pb.SaveCheckpointResponse:
        """Keeps a checkpoint."""
        given = request.checkpoint
        checkpoint = Checkpoint((given.format.harness, given.format.version), given.seq, given.data)
        await self._store.save(ref(request.session_id), request.generation, checkpoint)
        return pb.SaveCheckpointResponse()


def message(checkpoint: Checkpoint) -> checkpoint_pb2.Checkpoint:
    """A checkpoint as it is sent."""
    harness, version = checkpoint.format
    return checkpoint_pb2.Checkpoint(
        format=checkpoint_pb2.CheckpointFormat(harness=harness, version=version),
        seq=checkpoint.seq,
        data=checkpoint.data,
    )
