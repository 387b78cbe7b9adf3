from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from chassis.errors import WRONG_SETTINGS

START = "from chassis import lifecycle; import asyncio, resource, signal, sys\n"


def start(build: str, **options: object) -> subprocess.Popen[bytes]:
    """Runs `build(stack)` in a process of its own; its first line of output says: ready."""
    arguments = "".join(f", {name}={value!r}" for name, value in options.items())
    body = f"async def build(stack):\n{textwrap.indent(textwrap.dedent(build), '    ')}\n"
    script = f"{START}{body}lifecycle.run(build, service='probe'{arguments})\n"
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes, list[str]]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, [json.loads(line)["event"] for line in err.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_process_and_closes_what_it_opened(number):
    process = start(
        """
        stack.callback(print, "closed", flush=True)
        print("ready", flush=True)
        """
    )
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert finish(process) == (0, b"closed\n", ["stopping", "stopped"])


def test_build_that_fails_is_reported_and_closed():
    process = start("stack.callback(print, 'closed', flush=True); raise KeyError('broken')")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert out == b"closed\n"
    assert "KeyError: 'broken'" in json.loads(err)["exception"]


def test_what_keeps_a_process_from_starting_is_one_line_whatever_it_had_begun():
    process = start(
        """
        from chassis.errors import CannotStartError
        await stack.enter_async_context(asyncio.TaskGroup())
        raise CannotStartError("the port is taken")
        """
    )
    _, err = process.communicate(timeout=30)
    line = json.loads(err)
    assert process.returncode == 1
    assert (line["event"], line["reason"]) == ("cannot_start", "the port is taken")


def test_setting_that_cannot_be_used_is_one_line_that_names_its_variable():
    script = (
        "from chassis import lifecycle; from chassis.settings import Settings; "
        "lifecycle.configured(Settings, service='probe')"
    )
    variables = {"DROVER_REFLECTION": "perhaps", "DROVER_LISTEN": "here"}
    process = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | variables, capture_output=True, check=False
    )
    line = json.loads(process.stderr)
    assert process.returncode == WRONG_SETTINGS
    assert line["event"] == "cannot_start"
    assert line["reason"].startswith("DROVER_LISTEN: must be host:port; DROVER_REFLECTION: ")
    assert "perhaps" not in line["reason"]


def test_process_that_does_not_stop_in_time_is_cancelled():
    process = start(
        """
        stack.callback(print, "closed", flush=True)
        stack.push_async_callback(asyncio.Event().wait)
        print("ready", flush=True)
        """,
        stop_seconds=0.1,
    )
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert finish(process) == (1, b"closed\n", ["stopping", "stop_deadline_passed"])


def test_second_signal_does_not_wait_for_the_deadline():
    process = start(
        """
        stack.push_async_callback(asyncio.Event().wait)
        stack.callback(print, "stopping", flush=True)
        print("ready", flush=True)
        """,
        stop_seconds=600,
    )
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == b"stopping\n"
    process.send_signal(signal.SIGTERM)
    assert finish(process) == (1, b"", ["stopping", "stopping"])


def test_process_runs_on_uvloop_and_dumps_no_core():
    process = start(
        """
        print(type(asyncio.get_running_loop()).__module__)
        print(resource.getrlimit(resource.RLIMIT_CORE), flush=True)
        signal.raise_signal(signal.SIGTERM)
        """
    )
    assert finish(process)[1] == b"uvloop\n(0, 0)\n"
