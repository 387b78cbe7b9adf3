"""Runs a program for the hands: what it says matters only where it fails.

Run in a child of its own, by whose process group everything ends that is started here.
"""

from __future__ import annotations

import os
import subprocess

from services.hands.runner.failure import ToolFailure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TAIL = 4096
_READ = 65536


def program(*, arguments: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Runs it to its end. Raises `ToolFailure`, with the end of what it said."""
    os.umask(0o022)
    temporary = environment.get("TMPDIR")
    if temporary:
        os.makedirs(temporary, exist_ok=True)  # noqa: PTH103
    tail = b""
    try:
        with subprocess.Popen(  # noqa: S603
            arguments,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as running:
            assert running.stdout is not None  # noqa: S101  # a pipe was asked for
            while data := os.read(running.stdout.fileno(), _READ):
                tail = (tail + data)[-_TAIL:]
    except FileNotFoundError:
        raise ToolFailure(f"the sandbox has no {arguments[0]}") from None
    if running.returncode:
        text = tail.decode("utf-8", "replace").strip()
        raise ToolFailure(text or f"{arguments[0]} ended with {running.returncode}")
    return {"text": "done"}
