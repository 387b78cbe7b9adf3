"""S11: the sandbox lies: its programs, its libraries, its agent. The hands believe none of it."""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.terminal import plain
from drover.hands.v1.hands_service_pb2 import VERDICT_NOT_RUN
from services.hands.backends import agent_files
from services.hands.domain.recipe import Recipe
from tests.doubles import soak
from tests.doubles.docker_engine import IMAGE, Engine
from tests.doubles.hands_stack import UNFORKED, HandsStack, Sandboxes, text

# Agents that say what none says, once they have been let to serve. `say` sends a frame.
_GREETING = """\
import os, time
def say(body, length=None):
    length = len(body) if length is None else length
    os.write(1, length.to_bytes(4, "big") + body)
say(b'{"type":"ready"}')
os.read(0, 1 << 20)
say(b'{"type":"serving"}')
os.read(0, 1 << 20)
"""
LIES = {
    "no frames": "os.write(1, b'\\xff' * 65536)",
    "frames without end": "say(b'x', 1 << 31)",
    "no JSON": "say(b'{\"type\":')",
    "no object": "say(b'[1, 2]')",
    "nesting": "say(b'[' * 100000)",
    "halves of pairs": 'say(b\'{"type":"result","id":1,"text":"\\\\ud800"}\')',
    "numbers too large": 'say(b\'{"type":"result","id":1e400,"milliseconds":1e999}\')',
    "no text": 'say(b\'{"type":"result","id":1,"text":{"a":1},"milliseconds":1}\')',
    "a block of another kind": 'say(b\'{"type":"result","id":1,"milliseconds":1,"block":'
    '{"type":"image","media_type":"text/html","data":"PHNjcmlwdD4="}}\')',
    "results of others": '[say(b\'{"type":"result","id":%d,"text":"x","milliseconds":1}\''
    " % n) for n in range(2, 5000)]",
    "output of others": '[say(b\'{"type":"output","id":%d,"text":"x","dropped":0}\' % n)'
    " for n in range(5000)]",
    "nothing": "pass",
}


@pytest.mark.parametrize("kind", UNFORKED)
async def test_agents_that_lie_harm_their_own_session_alone(kind: str, tmp_path: Path) -> None:
    """What arrives is the same whatever the sandbox is made of."""
    async with Sandboxes(kind).stack(tmp_path) as hands:
        await hands.bash("x=1", session_id="honest")
        place = Path(hands.backend._directory, "agent")
        for lie, program in LIES.items():
            source = f"{_GREETING}{program}\ntime.sleep(1000)\n"
            (place / agent_files.COMPILED_FILE).write_text(source, encoding="utf-8")
            started = time.monotonic()
            result = await hands.run("bash", session_id=lie, command="true", timeout_ms=200)
            assert time.monotonic() - started < (5 if soak.share(1) >= 1 else 30), lie
            assert result.is_error, lie
            assert "<script" not in text(result)
            await hands.executor.release(lie)
        assert await hands.bash("echo $x", session_id="honest") == "1"


def altered(engine: Engine, name: str, files: Mapping[str, str], *changes: str) -> str:
    """An image with some files and some of its configuration other than they were."""
    container = engine.docker("create", "--network", "none", IMAGE, "true")
    for path, content in files.items():
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            entry = tarfile.TarInfo(path.removeprefix("/"))
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content.encode()))
        subprocess.run(
            ["docker", "cp", "-", f"{container}:/"],
            env=engine.environment,
            input=packed.getvalue(),
            check=True,
        )
    told = [word for change in changes for word in ("--change", change)]
    engine.docker("commit", *told, container, name)
    engine.docker("rm", container)
    return name


@pytest.fixture(scope="module")
def lying(docker_engine: Engine) -> str:
    """An image in which nothing is what it seems."""
    liar = "#!/usr/bin/python3\nprint('lied')\n"
    programs = {f"/evil/{name}": liar for name in ("ls", "cat", "git", "bash", "python")}
    return altered(
        docker_engine,
        "test/lying",
        {
            **programs,
            "/usr/local/bin/sh": liar,
            "/usr/bin/sh": liar,
            "/etc/ld.so.preload": "libm.so.6\n",
            "/etc/profile": "export LIED=1\n",
            "/etc/bash.bashrc": "export LIED=1\n",
        },
        "ENV PATH=/evil:/usr/bin:/bin LD_PRELOAD=libm.so.6 BASH_ENV=/etc/profile DROVER_LIE=1",
        "ENV PYTHONPATH=/evil PYTHONSTARTUP=/evil/x PYTHONHOME=/evil",
        "USER root",
        'ENTRYPOINT ["/evil/ls"]',
        'CMD ["/evil/cat"]',
        "WORKDIR /evil",
    )


async def test_image_that_lies_is_not_believed(
    lying: str, docker_engine: Engine, tmp_path: Path
) -> None:
    async with Sandboxes("docker", docker_engine.host).stack(tmp_path) as hands:

        async def run(command: str) -> str:
            given = ("sesn_1", f"c{time.monotonic_ns()}", 1, "bash")
            result = await hands.executor.execute(
                *given, f'{{"command": "{command}"}}', recipe=Recipe(image=lying)
            )
            return text(result)

        shown = await run("echo PATH=$PATH LIED=$LIED$DROVER_LIE; pwd; id -u")
        lines = shown.split("\n")
        assert lines[0] == "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin LIED="
        assert lines[1] == "/workspace"
        assert lines[2] != "0"
        assert "LD_PRELOAD" not in await run("env")
        written = await hands.executor.execute(
            "sesn_1",
            "w",
            1,
            "write",
            '{"file_path": "f", "content": "x"}',
            recipe=Recipe(image=lying),
        )
        assert not written.is_error


async def test_image_whose_python_lies_gives_no_sandbox(
    docker_engine: Engine, tmp_path: Path
) -> None:
    liar = "#!/bin/sh\nexec head -c 99999999 /dev/zero\n"
    image = altered(docker_engine, "test/python", {"/usr/local/bin/python3": liar})
    async with Sandboxes("docker", docker_engine.host).stack(tmp_path) as hands:
        given = ("sesn_1", "c1", 1, "bash", '{"command": "true"}')
        result = await hands.executor.execute(*given, recipe=Recipe(image=image))
        assert result.verdict == VERDICT_NOT_RUN
        assert len(text(result)) < 10_000
        assert not hands.pool.live()


async def test_commands_cannot_change_what_later_ones_are_told_by(hands: HandsStack) -> None:
    """The shell is the session's to bend, but it can be had anew, and file tools ask no program."""
    await hands.bash(
        "mkdir evil; for p in cat ls python3 git; do printf '#!/bin/bash\\necho lied\\n' >evil/$p; "
        "done; chmod 755 evil/*; export PATH=/workspace/evil LD_PRELOAD=/workspace/x.so; "
        "echo() { command printf lied; }; command printf 'true\\n' >f; :"
    )
    assert text(await hands.run("read", file_path="f")) == "true\n"
    assert text(await hands.run("grep", pattern="true", path="f")) == "/workspace/f:1:true"
    assert text(await hands.run("bash", restart=True)) == "bash session restarted"
    assert await hands.bash("cat f; printf '%s' $PATH$LD_PRELOAD") == (
        "true\n/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
    )


SEQUENCES = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "link": "\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\",
    "cursor": "\x1b[2J\x1b[1;1H\x1b[31mred\x1b[0m",
    "device": "\x1bP$q\x1b\\\x1b[c\x1b[6n",
    "single bytes": "\x9b31m\x9d0;x\x9c\x08\x08\r\x7f",
}


async def test_sequences_of_terminals_reach_no_terminal(hands: HandsStack) -> None:
    """Colours are left out for the model; whoever prints the rest takes the sting out of it."""
    for name, sequence in SEQUENCES.items():
        await hands.run("write", file_path="s", content=f"before {sequence} after")
        for result in (
            await hands.run("bash", command="cat s"),
            await hands.run("read", file_path="s"),
            await hands.run("grep", pattern="before"),
        ):
            printed = plain(text(result))
            assert "before" in printed, name
            assert "after" in printed, name
            assert not [
                c for c in printed if (c < " " and c not in "\t\n") or "\x7f" <= c <= "\x9f"
            ]


async def test_host_is_not_kept_busy_by_an_agent_that_never_stops_talking(
    tmp_path: Path,
) -> None:
    async with Sandboxes(*UNFORKED).stack(tmp_path) as hands:
        await hands.bash("true", session_id="honest")
        place = Path(hands.backend._directory, "agent")
        source = f"{_GREETING}\nwhile True:\n    say(b'{{}}')\n"
        (place / agent_files.COMPILED_FILE).write_text(source, encoding="utf-8")
        talking = asyncio.create_task(hands.run("bash", command="true", timeout_ms=500))
        assert await hands.bash("echo fine", session_id="honest") == "fine"
        assert (await talking).is_error
