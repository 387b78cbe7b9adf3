"""The tools as a model meets them (SEMANTICS §1, CASES F7 to F9)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from drover.hands.v1.hands_service_pb2 import (
    VERDICT_CANCELLED,
    VERDICT_COMPLETED,
    ExecuteResponse,
)
from services.hands.domain.printed import Chunk
from services.hands.following import follow
from tests.doubles import soak
from tests.doubles.hands_stack import (
    CLUSTERS,
    KINDS,
    RUNTIMES,
    HandsStack,
    Sandboxes,
    chosen,
    text,
)
from tests.doubles.hands_waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
# One that was killed counts until it is reaped, which takes a busy machine a moment.
SLEEPS_END = "while pgrep sleep >/dev/null; do read -rt 0.01 <> <(:) || :; done"
WIPE = "find /workspace /tmp /dev/shm /mnt/session/{home,outputs,tool_outputs} -mindepth 1 -delete"


@pytest.fixture(params=KINDS + RUNTIMES + CLUSTERS, scope="module")
def sandboxes(request: pytest.FixtureRequest) -> Sandboxes:
    """Each kind of sandbox that there is."""
    return chosen(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def used(
    sandboxes: Sandboxes, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HandsStack]:
    """One sandbox for all: to start it takes much longer than most of what is tested here."""
    async with sandboxes.stack(tmp_path_factory.mktemp("hands")) as stack:
        yield stack


@pytest_asyncio.fixture(loop_scope="module")
async def hands(used: HandsStack) -> HandsStack:
    """It as if it were new: no process, no file."""
    await used.run("bash", restart=True)
    await used.bash(WIPE)
    await used.run("bash", restart=True)
    return used


async def test_shell_keeps_directory_variables_functions_and_jobs(hands: HandsStack) -> None:
    await hands.bash("cd /tmp; x='a b'; declare -A m=([k]=v); f() { echo f:$1; }; sleep 50 &")
    shown = await hands.bash("pwd; echo $x ${m[k]}; f 1; jobs -r | wc -l")
    assert shown == "/tmp\na b v\nf:1\n1"  # noqa: S108  # the sandbox's own


async def test_status_that_is_not_zero_is_an_error_with_output_and_code(
    hands: HandsStack,
) -> None:
    result = await hands.run("bash", command="echo out; echo err >&2; (exit 3)")
    assert result.is_error
    assert text(result) == "out\nerr\n[exit code 3]"
    assert result.verdict == VERDICT_COMPLETED


async def test_command_without_output_has_no_content(hands: HandsStack) -> None:
    result = await hands.run("bash", command="true")
    assert not result.content
    assert not result.is_error


@pytest.mark.parametrize(
    ("command", "text_part"),
    [
        ("echo 'unterminated", "unexpected EOF"),
        ("if true; then", "syntax error"),
        (")", "syntax error"),
        ("cat <<EOF\nno end", "no end"),
        ("break; continue; echo alive", "alive"),
        ("return 4", "[exit code 4]"),
        ("exit 5", "[exit code 5"),
        ("exec false", "[exit code 1"),
        ("set -e; false; echo no", "[exit code 1"),
        ("set -u; echo $nope", "unbound variable"),
        ("kill -9 $$", "[exit code 137"),
        ("kill -TERM $$", "[exit code 143"),
        ("exec >/dev/null; echo lost", ""),
        ("exec 1>&- 2>&-", ""),
        ("echo '__DONE__'; printf '0 1\\n'", "0 1"),
    ],
)
async def test_no_command_confuses_the_shell(
    hands: HandsStack, command: str, text_part: str
) -> None:
    result = await hands.run("bash", command=command, timeout_ms=5000)
    assert text_part in text(result)
    await hands.run("bash", restart=True)
    assert await hands.bash("echo fine") == "fine"


async def test_restart_alone_says_so_and_forgets_all(hands: HandsStack) -> None:
    await hands.bash("x=1; cd /tmp; sleep 1000 &")
    assert text(await hands.run("bash", restart=True)) == "bash session restarted"
    assert await hands.bash(f"echo x=$x; pwd; jobs; {SLEEPS_END}") == "x=\n/workspace"


async def test_restart_with_a_command_runs_it_in_the_new_shell(hands: HandsStack) -> None:
    await hands.bash("x=1")
    assert text(await hands.run("bash", restart=True, command="echo x=$x")) == "x="


async def test_input_of_commands_is_empty(hands: HandsStack) -> None:
    assert (
        await hands.bash("cat; read x; echo $?; python3 -c 'import sys; print(sys.stdin.read())'")
        == "1"
    )


async def test_background_delays_no_call_and_is_heard_later(hands: HandsStack) -> None:
    started = time.monotonic()
    await hands.bash("(while [ ! -e /tmp/go ]; do :; done; echo heard) &")
    assert time.monotonic() - started < 30
    assert await hands.bash("touch /tmp/go; wait; echo after") == "heard\nafter"


async def test_timeout_kills_all_and_says_so_within_a_second(hands: HandsStack) -> None:
    await hands.bash("x=1")
    started = time.monotonic()
    result = await hands.run(
        "bash",
        command="trap '' TERM INT HUP; (setsid sleep 1000 &); echo before; sleep 1000",
        timeout_ms=300,
    )
    assert time.monotonic() - started < 0.3 + (1.0 if soak.share(1) >= 1 else 4.0)
    assert result.is_error
    assert text(result).startswith("before\nbash: command timed out after 0.3s")
    assert await hands.bash(f"echo x=$x; {SLEEPS_END}") == "x="


async def test_cancel_stops_the_whole_process_group(hands: HandsStack) -> None:
    await hands.bash("true")
    command = "echo begun; (setsid sleep 1000 &); touch begun; sleep 1000"
    asked = asyncio.create_task(hands.run("bash", call_id="c", command=command))
    volume = hands.pool._workspaces.find("sesn_1")
    assert volume is not None
    await eventually((volume.root / "workspace" / "begun").exists)
    await hands.executor.cancel("sesn_1", 1, ["c"])
    result = await asked
    assert result.verdict == VERDICT_CANCELLED
    assert "begun" in text(result)
    await hands.bash(SLEEPS_END)


async def test_stopped_search_and_killed_search_hurt_nobody(hands: HandsStack) -> None:
    await hands.bash("printf '%s\\n' $(printf 'a%.0s' {1..40})b >/workspace/x")
    slow = asyncio.create_task(hands.run("grep", call_id="g", pattern="(a+)+$"))
    assert await hands.bash("echo beside") == "beside"
    timed_out = await hands.run("bash", command="sleep 100", timeout_ms=100)
    assert timed_out.is_error
    assert not slow.done()
    await hands.executor.cancel("sesn_1", 1, ["g"])
    assert (await slow).verdict == VERDICT_CANCELLED


async def test_output_is_cut_to_its_ends_with_its_size_and_a_file(hands: HandsStack) -> None:
    result = await hands.run("bash", call_id="big", command="seq 1 200000")
    shown = text(result)
    assert shown.startswith("1\n2\n")
    assert shown.endswith("\n200000")
    assert "1288895 bytes and is in /mnt/session/tool_outputs/big.txt" in shown
    assert await hands.bash("wc -l </mnt/session/tool_outputs/big.txt") == "200000"
    part = await hands.run(
        "read", file_path="/mnt/session/tool_outputs/big.txt", view_range=[150_000, 150_001]
    )
    assert text(part) == "150000\n150001"


async def test_output_of_any_bytes_is_valid_text(hands: HandsStack) -> None:
    shown = await hands.bash(r"printf 'a\xff\x00b\xed\xa0\x80\x1b[31mc\x1b[0m'")
    assert shown == "a\ufffd\ufffdb\ufffd\ufffd\ufffdc"


async def test_files_are_written_read_edited_and_found(hands: HandsStack) -> None:
    wrote = await hands.run("write", file_path="src/a.py", content="print('ü')\n")
    assert text(wrote) == "wrote 12 bytes to src/a.py"
    assert text(await hands.run("read", file_path="/workspace/src/a.py")) == "print('ü')\n"
    edited = await hands.run("edit", file_path="src/a.py", old_string="ü", new_string="u")
    assert text(edited) == "edited src/a.py (1 replacement(s))"
    assert text(await hands.run("glob", pattern="**/*.py")) == "/workspace/src/a.py"
    assert text(await hands.run("grep", pattern="pr.nt")) == "/workspace/src/a.py:1:print('u')"
    assert await hands.bash("python3 src/a.py") == "u"


async def test_file_tools_reach_the_sessions_directories_only(hands: HandsStack) -> None:
    for path in ("/tmp/x", "/mnt/session/outputs/x", "/workspace/x"):  # noqa: S108
        assert not (await hands.run("write", file_path=path, content="x")).is_error
    refused = await hands.run("write", file_path="/mnt/session/uploads/x", content="x")
    assert text(refused) == "write: /mnt/session/uploads/x: read-only file system"
    for path in ("/etc/passwd", "/proc/1/environ", "/run/agent/__main__.py"):
        assert "outside the session's" in text(await hands.run("read", file_path=path))


async def test_image_comes_back_as_a_block(hands: HandsStack) -> None:
    await hands.bash(r"printf '\x89PNG\r\n\x1a\n' >a.png")
    result = await hands.run("read", file_path="a.png")
    assert result.content[0].image.source.base64.media_type == "image/png"


async def test_large_pdf_comes_back_whole(hands: HandsStack) -> None:
    await hands.bash("(printf '%%PDF-1.7\\n'; head -c 18000000 /dev/urandom) >a.pdf")
    result = await hands.run("read", file_path="a.pdf")
    assert len(result.content[0].document.source.base64.data) > 24_000_000


async def test_long_command_and_long_file_pass(hands: HandsStack) -> None:
    content = "x" * 900_000
    assert await hands.bash(f"x={content}; echo ${{#x}}") == "900000"
    wrote = await hands.run("write", file_path="big", content=content * 20)
    assert text(wrote) == "wrote 18000000 bytes to big"


async def test_parallel_calls_are_answered_each_with_its_own(hands: HandsStack) -> None:
    async with asyncio.TaskGroup() as tasks:
        writes = [
            tasks.create_task(hands.run("write", file_path=f"f{n}", content=str(n)))
            for n in range(20)
        ]
        commands = [tasks.create_task(hands.run("bash", command=f"echo {n}")) for n in range(10)]
    assert [text(task.result()) for task in commands] == [str(n) for n in range(10)]
    assert not any(task.result().is_error for task in writes)
    reads = await asyncio.gather(*(hands.run("read", file_path=f"f{n}") for n in range(20)))
    assert [text(result) for result in reads] == [str(n) for n in range(20)]


async def test_reading_a_huge_file_by_lines_delays_nothing(hands: HandsStack) -> None:
    await hands.bash("yes 0123456789 | head -c 60000000 >big")
    reading = asyncio.create_task(
        hands.run("read", file_path="big", view_range=[5_000_000, 5_000_000])
    )
    assert await hands.bash("echo beside") == "beside"
    assert text(await reading) == "0123456789"


async def updates(
    hands: HandsStack, call_id: str, command: str
) -> AsyncIterator[Chunk | ExecuteResponse]:
    given = ("sesn_1", call_id, 1, "bash", json.dumps({"command": command}))
    asked = await hands.executor.ask(*given)
    assert not isinstance(asked, ExecuteResponse)
    async for update in follow(asked):
        yield update


async def test_output_is_followed_as_it_comes_and_the_result_is_the_same(
    hands: HandsStack,
) -> None:
    wait = "until [ -e /tmp/go ]; do :; done"
    command = f"printf 'a\\xe2\\x82'; {wait}; printf '\\xac\\n'; echo err >&2"
    seen, result = "", None
    async for update in updates(hands, "f1", command):
        if isinstance(update, Chunk):
            seen += update.text
            await hands.run("write", file_path="/tmp/go", content="")  # noqa: S108
        else:
            result = update
    assert seen == "a\u20ac\nerr\n"
    assert result is not None
    assert text(result) == "a\u20ac\nerr"
    assert await hands.run("bash", call_id="f1", command=command) != result  # only by `replayed`


async def test_who_comes_late_sees_what_was_printed_and_who_leaves_stops_nothing(
    hands: HandsStack,
) -> None:
    command = "echo begun; until [ -e /tmp/go ]; do :; done; echo ended"
    asked = asyncio.create_task(hands.run("bash", call_id="f2", command=command))
    await hands.run("glob", pattern="*")
    async for update in updates(hands, "f2", command):
        assert update == Chunk("begun\n")
        break
    late = asyncio.create_task(_all(updates(hands, "f2", command)))
    await hands.run("write", file_path="/tmp/go", content="")  # noqa: S108
    assert text(await asked) == "begun\nended"
    *chunks, result = await late
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, Chunk)) == "begun\nended\n"
    assert result == await asked


async def test_flood_is_not_slowed_and_what_is_not_shown_is_counted(hands: HandsStack) -> None:
    *chunks, result = await _all(updates(hands, "f3", "yes 123456789 | head -c 30000000"))
    shown = sum(len(chunk.text) for chunk in chunks if isinstance(chunk, Chunk))
    dropped = sum(chunk.dropped for chunk in chunks if isinstance(chunk, Chunk))
    assert shown + dropped == 30_000_000
    assert 0 < shown <= 8 * 1024 * 1024
    assert isinstance(result, ExecuteResponse)
    assert "30000000 bytes" in text(result)
    assert len(text(result)) < 100_000


async def test_command_that_is_cancelled_is_followed_to_its_end(hands: HandsStack) -> None:
    async for update in updates(hands, "f4", "echo begun; sleep 1000"):
        if isinstance(update, Chunk):
            await hands.executor.cancel("sesn_1", 1, ["f4"])
        else:
            assert update.verdict == VERDICT_CANCELLED


async def _all(updates: AsyncIterator[Chunk | ExecuteResponse]) -> list[Chunk | ExecuteResponse]:
    return [update async for update in updates]
