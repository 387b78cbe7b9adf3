"""A large file goes in and out, and no process on its way holds it in memory.

It is an upload, then a session's file, then what the session leaves, then a download.
"""

from __future__ import annotations

import hashlib
import io
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.messages_api import ToolUse, text, tools
from tests.doubles.soak import limit, share
from tests.e2e.driving import MODEL, TOOLSET, run_turn
from tests.e2e.stack import BETA, Stack

MIB = 1024 * 1024
SIZE = int(share(400, least=128)) * MIB
GROWTH = 50 * MIB
SERVICES = ("gateway", "registry")


class Noise(io.RawIOBase):
    """So many bytes that no compression helps with; their digest is in `sha`."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._block = os.urandom(MIB)
        self.sha = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._block[: min(len(buffer), self._left)]
        buffer[: len(piece)] = piece
        self._left -= len(piece)
        self.sha.update(piece)
        return len(piece)


def status(stack: Stack, service: str, field: str) -> int:
    """A figure of a process, in bytes."""
    lines = Path(f"/proc/{stack.pid(service)}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


@pytest.mark.timeout(limit(120))
def test_a_large_file_goes_in_and_out_without_being_held_in_memory(stack: Stack) -> None:
    with stack.client(_strict_response_validation=True, max_retries=0) as client:
        client.beta.files.delete(client.beta.files.upload(file=("warm", b"x")).id)
        before = {}
        for service in SERVICES:
            Path(f"/proc/{stack.pid(service)}/clear_refs").write_text("5")  # the peak begins anew
            before[service] = status(stack, service, "VmRSS")
        noise = Noise(SIZE)
        uploaded = client.beta.files.upload(file=("noise.bin", io.BufferedReader(noise)))
        assert uploaded.size_bytes == SIZE

        room = {"drover.file_mib": "512", "drover.workspace_mib": "2048"}
        environment = client.beta.environments.create(
            name=f"desk-{uuid.uuid4().hex}", metadata=room
        )
        agent = client.beta.agents.create(name="clerk", model=MODEL, tools=[TOOLSET])  # type: ignore[list-item]
        given: Any = {"type": "file", "file_id": uploaded.id, "mount_path": "noise.bin"}
        session = client.beta.sessions.create(
            agent=agent.id, environment_id=environment.id, resources=[given]
        )
        command = "cp /mnt/session/uploads/noise.bin /mnt/session/outputs/ && echo copied"
        stack.model.script(tools(ToolUse("bash", {"command": command})), text("done"))
        seen = run_turn(client, session.id, "copy")
        (result,) = [event for event in seen if event.type == "agent.tool_result"]
        assert result.content[0].text.strip() == "copied"

        left: list[Any] = []

        def published() -> bool:
            listed = client.beta.files.list(scope_id=session.id, betas=[BETA])
            left[:] = [file for file in listed if file.downloadable]
            return bool(left)

        stack.wait_for(published, "what the session has left", 60)
        digest = hashlib.sha256()
        with client.beta.files.with_streaming_response.download(left[0].id) as answer:
            for piece in answer.iter_bytes(MIB):
                digest.update(piece)
        assert digest.hexdigest() == noise.sha.hexdigest()
        for service in SERVICES:
            grown = status(stack, service, "VmHWM") - before[service]
            assert grown <= GROWTH, f"{service} has grown by {grown / MIB:.0f} MiB"
        client.beta.sessions.delete(session.id)
        stack.wait_for(lambda: not published(), "the end of the session's files")
        client.beta.files.delete(uploaded.id)
