"""What every backend promises of its sandboxes."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from chassis.errors import CannotStartError
from drover.hands.v1.hands_service_pb2 import VERDICT_OUTCOME_UNKNOWN
from services.hands.backends.marks import Marks
from tests.doubles.hands_stack import HandsStack, Sandboxes, hands_stack, running
from tests.doubles.hands_waiting import eventually, ready_spares


async def test_place_and_user_are_what_the_contract_says(hands: HandsStack) -> None:
    shown = await hands.bash("pwd; id -un; echo $HOME; printf '%s\\n' /mnt/session/*; hostname")
    assert shown.split("\n") == [
        "/workspace",
        "agent",
        "/mnt/session/home",
        "/mnt/session/home",
        "/mnt/session/outputs",
        "/mnt/session/tool_outputs",
        "/mnt/session/uploads",
        "sandbox",
    ]


async def test_session_may_write_where_it_should_and_nowhere_else(hands: HandsStack) -> None:
    places = "/workspace /mnt/session/outputs /mnt/session/home /tmp /dev/shm"
    await hands.bash(f"for d in {places}; do touch $d/x || exit 1; done")
    forbidden = "/ /usr /etc /dev /mnt/session/uploads /run/agent /proc /opt"
    shown = await hands.bash(f"for d in {forbidden}; do touch $d/x 2>/dev/null && echo $d; done; :")
    assert shown == ""


async def test_work_survives_the_sandbox_and_its_scratch_does_not(hands: HandsStack) -> None:
    await hands.bash(
        "x=5; for d in /workspace /mnt/session/{home,outputs} /tmp; do echo 1 >$d/f; done"
    )
    died = await hands.run("bash", command="kill -9 -1; kill -9 $PPID")
    assert died.verdict == VERDICT_OUTCOME_UNKNOWN
    places = "/mnt/session/{home,outputs}/f /workspace/f /tmp/*"
    shown = await hands.bash(f"for f in {places}; do test -e $f && echo $f; done; echo x=$x")
    assert shown.split("\n") == [
        "/mnt/session/home/f",
        "/mnt/session/outputs/f",
        "/workspace/f",
        "x=",
    ]


async def test_work_survives_the_service(sandboxes: Sandboxes, tmp_path: Path) -> None:
    async with sandboxes.stack(tmp_path) as first:
        await first.bash("echo kept >f")
    async with sandboxes.stack(tmp_path) as second:
        assert await second.bash("cat f; echo more >>f; cat f") == "kept\nkept\nmore"


async def test_spare_becomes_a_sessions_sandbox_and_its_work_survives_it(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    async with sandboxes.stack(tmp_path, spares=1) as hands:
        hands.pool.fill()
        await eventually(lambda: ready_spares(hands.pool))
        await hands.bash("echo kept >f; mkdir d; cd d")
        assert await hands.bash("pwd") == "/workspace/d"
        await hands.executor.release("sesn_1")
        assert await hands.bash("pwd; cat f") == "/workspace\nkept"


async def test_released_sandbox_leaves_no_process(hands: HandsStack) -> None:
    await hands.bash("sleep 1000 & (setsid sleep 1000 &) ; nohup sleep 1000 >/dev/null 2>&1 &")
    processes = hands.processes()
    assert len(processes) >= hands.idle_processes + 3
    await hands.executor.release("sesn_1")
    assert not any(map(running, processes))


async def test_closed_stack_leaves_no_process_mark_or_group(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "hands" / "run" / "marks")
    async with hands_stack(tmp_path) as hands:
        await hands.bash("sleep 1000 &")
        processes = hands.processes()
        name = hands.backend._groups_name
        assert marks.named()
    assert not any(map(running, processes))
    assert not marks.named()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{name}"))


async def test_sandboxes_of_sessions_run_side_by_side(hands: HandsStack) -> None:
    async def work(session_id: str) -> str:
        await hands.bash(f"echo {session_id} >/workspace/me", session_id=session_id)
        return await hands.bash("cat /workspace/me", session_id=session_id)

    names = [f"sesn_{number}" for number in range(4)]
    assert await asyncio.gather(*map(work, names)) == names


async def test_sandbox_that_ends_by_itself_is_noticed_and_replaced(hands: HandsStack) -> None:
    assert await hands.bash("touch /tmp/mark; echo /tmp/*") == "/tmp/mark"  # noqa: S108  # its own
    result = await hands.run("bash", command="kill -9 $PPID; sleep 100")
    assert (result.verdict, result.is_error) == (VERDICT_OUTCOME_UNKNOWN, True)
    assert await hands.bash("echo /tmp/*") == "/tmp/*"  # noqa: S108


async def test_second_service_in_the_same_place_touches_nothing(
    hands: HandsStack, sandboxes: Sandboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.hands.backends.lock._SECONDS", 0)
    await hands.bash("x=1")
    with pytest.raises(CannotStartError, match="another hands service"):
        async with sandboxes.stack(tmp_path):
            pytest.fail("it was let in")
    assert await hands.bash("echo x=$x") == "x=1"


async def test_purged_session_leaves_no_file(sandboxes: Sandboxes, tmp_path: Path) -> None:
    async with sandboxes.stack(tmp_path) as hands:
        await hands.bash("mkdir -p d/e; touch d/e/f; chmod 0 d/e")
        volume = hands.pool._workspaces.find("sesn_1")
        assert volume is not None
        await hands.executor.release("sesn_1")
        await hands.pool._workspaces.remove(volume)
        assert not volume.root.exists()


async def test_usual_programs_are_there_when_the_machine_has_them(hands: HandsStack) -> None:
    for name in ("python3", "bash", "git", "sed", "awk", "tar", "grep", "find"):
        if shutil.which(name, path="/usr/bin:/bin") is not None:
            assert await hands.bash(f"command -v {name}")
