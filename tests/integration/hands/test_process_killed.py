"""The service dies; what it ran does not outlive it, and nothing runs twice (P3, F6)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from drover.hands.v1 import hands_service_pb2 as pb
from services.hands.backends.marks import Marks
from services.hands.backends.process import children, identify
from services.hands.domain.execution import SANDBOX_LOST
from services.hands.settings import HandsSettings
from tests.doubles.hands_stack import running
from tests.doubles.hands_waiting import eventually
from tests.integration.hands.conftest import HandsProcess, call


def text(result: pb.ExecuteResponse) -> str:
    return "".join(block.text.text for block in result.content)


def marks(settings: HandsSettings) -> Marks:
    return Marks(settings.data_dir / "hands" / "run" / "marks")


def tree(pid: int) -> set[int]:
    """A process and all below it, its threads' children included."""
    found, pending = set(), [pid]
    while pending:
        found.add(current := pending.pop())
        for task in Path(f"/proc/{current}/task").glob("*"):
            try:
                pending += map(int, (task / "children").read_text().split())
            except OSError:
                continue
    return found


async def test_killed_service_takes_its_sandboxes_along(process: HandsProcess) -> None:
    await process.client.Execute(call("c1", command="(setsid sleep 1000 &) ; sleep 1000 &"))
    below = tree(process.process.pid) - {process.process.pid}
    assert len(below) >= 6
    await process.end(signal.SIGKILL)
    await eventually(lambda: not any(map(running, below)))


async def test_call_that_ran_when_the_service_was_killed_is_unknown_and_not_run_again(
    process: HandsProcess, settings: HandsSettings
) -> None:
    await process.client.Execute(call("done", command="echo once >>log; cat log"))
    started = settings.data_dir / "hands" / "workspaces" / "sesn_1" / "workspace" / "started"
    request = call("lost", command="echo ran >>started; sleep 1000")
    asked = asyncio.ensure_future(_result(process.client, request))
    await eventually(lambda: started.exists() and started.read_text())
    process.process.kill()
    with pytest.raises(grpc.aio.AioRpcError):
        await asked
    await process.end(signal.SIGKILL)
    after = HandsProcess(settings.data_dir)
    await after.start()
    lost = await after.client.Execute(request)
    assert (lost.verdict, lost.is_error) == (pb.VERDICT_OUTCOME_UNKNOWN, True)
    done = await after.client.Execute(call("done", command="echo once >>log; cat log"))
    assert (text(done), done.replayed) == ("once", True)
    following = await after.client.Execute(call("next", command="cat started log"))
    assert text(following) == f"ran\nonce\n{SANDBOX_LOST}"
    await after.end(signal.SIGTERM)


async def test_reading_that_ran_when_the_service_was_killed_runs_once_more(
    process: HandsProcess, settings: HandsSettings
) -> None:
    await process.client.Execute(call("w", "write", file_path="x", content="a" * 40 + "b\n"))
    asked = asyncio.ensure_future(_result(process.client, call("g", "grep", pattern="(a+)+$")))
    await eventually(lambda: len(tree(process.process.pid)) >= 6)
    process.process.kill()
    with pytest.raises(grpc.aio.AioRpcError):
        await asked
    await process.end(signal.SIGKILL)
    (settings.data_dir / "hands/workspaces/sesn_1/workspace/x").write_text("aab\naa\n")
    after = HandsProcess(settings.data_dir)
    await after.start()
    result = await after.client.Execute(call("g", "grep", pattern="(a+)+$"))
    assert text(result) == "/workspace/x:2:aa"
    await after.end(signal.SIGTERM)


async def test_stopped_service_ends_cleanly_with_calls_under_way(
    process: HandsProcess, settings: HandsSettings
) -> None:
    request = call("c1", command="touch begun; sleep 1000")
    asked = asyncio.ensure_future(_result(process.client, request))
    begun = settings.data_dir / "hands" / "workspaces" / "sesn_1" / "workspace" / "begun"
    await eventually(begun.exists)  # processes say nothing: a spare sandbox has as many
    below = tree(process.process.pid) - {process.process.pid}
    process.process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(process.process.wait, 30)
    assert not any(map(running, below))
    assert (await asked).verdict == pb.VERDICT_OUTCOME_UNKNOWN
    assert await process.end(signal.SIGTERM)
    assert not marks(settings).named()


async def test_sandbox_left_behind_is_killed_before_the_next_service_serves(
    settings: HandsSettings,
) -> None:
    """Whatever kept it alive: what its mark names is ended."""
    left = await asyncio.create_subprocess_exec("sleep", "1000")
    bystander = await asyncio.create_subprocess_exec("sleep", "1000")
    identity, other = identify(left.pid), identify(bystander.pid)
    assert identity is not None
    assert other is not None
    written = marks(settings)
    written.put("hand_left", [identity])
    # Its number was given to another process since: not the one that the mark means.
    written.put("hand_gone", [type(other)(other.pid, other.started - 1)])
    process = HandsProcess(settings.data_dir)
    try:
        await process.start()
        assert not running(left.pid)
        assert running(bystander.pid)
        assert not written.named().keys() & {"hand_left", "hand_gone"}
    finally:
        await process.end(signal.SIGTERM)
        bystander.kill()
        await left.wait()
        await bystander.wait()


async def test_sandbox_whose_service_is_stopped_and_killed_is_ended_by_the_next(
    process: HandsProcess, settings: HandsSettings
) -> None:
    await process.client.Execute(call("c1", command="sleep 1000 &"))
    named = [one.pid for processes in marks(settings).named().values() for one in processes]
    assert named
    assert all(map(running, named))
    outer = [pid for pid in named if children(pid)]
    assert outer
    await process.end(signal.SIGKILL)
    after = HandsProcess(settings.data_dir)
    await after.start()
    assert not any(map(running, named))
    await after.end(signal.SIGTERM)


async def _result(client: Any, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
    result: pb.ExecuteResponse = await client.Execute(request)
    return result


def test_marks_name_processes_for_ever() -> None:
    assert identify(os.getpid()) == identify(os.getpid())
    assert identify(2**22 + 1) is None
