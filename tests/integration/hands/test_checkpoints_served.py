"""What callers of the service see of checkpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.grpc.channel import open_channel
from drover.hands.v1 import hands_service_pb2 as pb
from drover.hands.v1.hands_service_pb2_grpc import HandsServiceStub
from services.hands.main import build
from services.hands.settings import HandsSettings
from tests.doubles.hands_keeping import until
from tests.doubles.standing import PromptExit
from tests.integration.hands.conftest import TOKEN, call


@asynccontextmanager
async def served(directory: Path, name: str) -> AsyncIterator[Any]:
    """A client of a service on a machine of that name; all have one database and one store."""
    token = directory / name / "run" / "token"
    token.parent.mkdir(parents=True, exist_ok=True)
    token.write_text(TOKEN)
    settings = HandsSettings(
        data_dir=directory / name,
        reflection=False,
        hands_database_url=f"sqlite:///{directory / 'hands.db'}",
        hands_checkpoints=f"file://{directory}/store",
        hands_checkpoint_idle_seconds=0.05,
        hands_spare_sandboxes=0,
    )
    async with PromptExit() as stack:
        server = await build(settings, stack)
        channel = await stack.enter_async_context(open_channel(server.address, settings.token()))
        yield HandsServiceStub(channel)


def text(result: pb.ExecuteResponse) -> str:
    return "".join(block.text.text for block in result.content)


async def test_calls_say_that_they_did_not_run_until_the_workspace_is_back(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with served(tmp_path, "one") as hands:
        await hands.Execute(call("c1", command="echo kept > file"))
    # It stopped in order: what it had not stored yet, it has stored then.
    (stored,) = store.rglob("*.tar.gz")
    aside = stored.rename(tmp_path / "aside")
    async with served(tmp_path, "two") as hands:
        result = await hands.Execute(call("c2", command="cat file"))
        assert (result.verdict, result.is_error) == (pb.VERDICT_NOT_RUN, True)
        assert "its checkpoint is not in the store" in text(result)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await hands.Provision(pb.ProvisionRequest(session_id="sesn_1", generation=1))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        stored.parent.mkdir(exist_ok=True)
        aside.rename(stored)
        assert text(await hands.Execute(call("c3", command="cat file"))).startswith("kept")
        await hands.Release(pb.ReleaseRequest(session_id="sesn_1", generation=1, purge=True))
        await until(lambda: [*store.rglob("*.tar.gz")] == [])
