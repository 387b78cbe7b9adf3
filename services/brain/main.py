"""The brain process."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import structlog

from catalogue.models import load
from chassis import lifecycle
from chassis.clock import SystemClock
from chassis.ids import new_id
from chassis.telemetry.metrics import exposed
from drover.brain.v1.brain_service_pb2_grpc import add_BrainServiceServicer_to_server
from drover.file.v1.file_service_pb2_grpc import FileServiceStub
from drover.hands.v1.hands_service_pb2_grpc import HandsServiceStub
from drover.session.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from identity.about import tell
from identity.leaving import announced
from identity.peers import Peers
from identity.table import Caller
from services.brain.clients.checkpoints import CheckpointSender
from services.brain.clients.files import RegistryFiles
from services.brain.domain.decision import Limits
from services.brain.harness.clearing import ClearingPolicy
from services.brain.harness.compaction import CompactionPolicy
from services.brain.harness.port import Setup
from services.brain.harness.registry import assemble
from services.brain.loop.checkpoints import Checkpointing
from services.brain.loop.pool import BrainPool
from services.brain.loop.retry import RetryPolicy
from services.brain.loop.state_cache import StateCache
from services.brain.loop.sync_points import FileSyncPoints, NoSyncPoints, SyncPoints
from services.brain.loop.turn import Ports
from services.brain.loop.worker import Worker
from services.brain.metrics import CheckpointMetrics
from services.brain.model.access import open_model
from services.brain.model.metered import MeteredModel
from services.brain.model.port import ModelError
from services.brain.rpc import BrainRpc
from services.brain.settings import BrainSettings

if TYPE_CHECKING:
    from chassis.grpc.server import GrpcServer
    from services.brain.model.anthropic_client import AnthropicModelClient

STOP_GRACE = 0.5
"""Seconds to tell of sessions that were left."""

_log = structlog.get_logger("brain")


async def build(settings: BrainSettings, stack: AsyncExitStack) -> GrpcServer:
    """Builds a brain and starts it; `stack` stops it."""
    registry = await exposed(settings.metrics_listen, stack)
    peers, models = Peers.of(settings, Caller.BRAIN, registry), load(settings.models_file)
    sessions, hands, records = [
        await stack.enter_async_context(peers.channel(settings.address_of(callee), callee))
        for callee in (Caller.SESSION, Caller.HANDS, Caller.REGISTRY)
    ]
    model = await stack.enter_async_context(open_model(os.environ, settings.model_provider))
    points: SyncPoints = NoSyncPoints()
    if settings.sync_points is not None:
        points = FileSyncPoints(settings.sync_points)
    harnesses = assemble(
        Setup(
            models=models,
            max_output_tokens=settings.max_output_tokens,
            limits=Limits(requests=settings.max_requests_per_turn, prices=models),
            clearing=ClearingPolicy(
                begin=settings.clear_at, least=settings.clear_least, keep=settings.clear_keep
            ),
            compaction=CompactionPolicy(
                begin=settings.compact_at,
                tail=settings.compact_tail,
                reply=settings.max_output_tokens,
            ),
        )
    )
    metrics = CheckpointMetrics(registry)
    sender = CheckpointSender(CheckpointServiceStub(sessions), metrics)
    await stack.enter_async_context(sender)
    worker = Worker(
        name=settings.brain_name,
        sessions=SessionServiceStub(sessions),
        hands=HandsServiceStub(hands),
        harnesses=harnesses,
        ports=Ports(
            model=MeteredModel(model, registry),
            retry=RetryPolicy(attempts=settings.model_attempts),
            clock=SystemClock(),
            ids=new_id,
            points=points,
            models=models,
            judge_seconds=settings.judge_seconds,
            files=RegistryFiles(FileServiceStub(records), max_bytes=settings.file_cache_bytes),
        ),
        cache=StateCache(max_bytes=settings.state_cache_bytes),
        checkpointing=Checkpointing(harnesses, sender.send, metrics),
    )
    pool = await stack.enter_async_context(BrainPool(worker.work, settings.max_sessions))
    server = peers.server(settings, registry)
    server.add(add_BrainServiceServicer_to_server, BrainRpc(pool))
    tell(server, settings.brain_name)
    await server.start()
    stack.push_async_callback(_leave, server, worker, pool, settings.brain_drain_seconds)
    await stack.enter_async_context(announced(settings.drain_seconds, server))
    warming = asyncio.create_task(_warm_up(model))
    stack.callback(warming.cancel)
    return server


async def _leave(server: GrpcServer, worker: Worker, pool: BrainPool, seconds: float) -> None:
    """Leaves sessions to other brains: those whose model answers just now once that is durable.

    Takes none any more. What is not done after `seconds` is broken off, and begun anew elsewhere.
    """
    worker.leave()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.stop(seconds + STOP_GRACE))
        await pool.drain(seconds)


async def _warm_up(model: AnthropicModelClient) -> None:
    """Imports and builds the SDK's client beside the first calls, instead of in one of them."""
    try:
        await model.prepare()
    except ModelError as error:
        _log.error("model_unusable", message=error.message, check=error.advice)


def main() -> None:
    """Runs a brain until it is told to stop."""
    settings = lifecycle.configured(BrainSettings, service="brain")
    # Traces are looked for by a name that stays, though every container has another.
    named = "brain_name" in settings.model_fields_set
    lifecycle.run(
        partial(build, settings),
        service=settings.brain_name if named else "brain",
        log_level=settings.log_level,
        stop_seconds=settings.stop_seconds,
    )


if __name__ == "__main__":
    main()
