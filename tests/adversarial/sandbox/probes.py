"""Programs that try, from inside a sandbox, what they should not be able to do."""

from __future__ import annotations

import json
from typing import Any

from tests.doubles.hands_stack import HandsStack

_PRELUDE = """\
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
found = {}

def call(number, *arguments):
    "The error of a system call, 0 if it worked."
    ctypes.set_errno(0)
    return 0 if libc.syscall(number, *arguments) >= 0 else ctypes.get_errno()

def failed(work, *arguments, **more):
    "The error of some work, 0 if it worked."
    try:
        work(*arguments, **more)
    except OSError as error:
        return error.errno or -1
    return 0

def text(path):
    "What is in a file, or nothing."
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""

def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""

def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
"""
_END = "\nprint(json.dumps(found))\n"


async def probe(hands: HandsStack, program: str, **given: Any) -> dict[str, Any]:
    """What a Python program put into `found`; the names of the prelude are there."""
    session_id = given.get("session_id", "sesn_1")
    path = "/tmp/probe.py"  # noqa: S108  # the sandbox's own
    content = _PRELUDE + program + _END
    await hands.run("write", session_id=session_id, file_path=path, content=content)
    told: dict[str, Any] = json.loads(await hands.bash(f"python3 {path}", **given))
    return told
