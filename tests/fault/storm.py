"""A storm: clients send while any process may die at any time."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anthropic

from tests.doubles.messages_api import Reply, Request, ToolUse, text, tools
from tests.doubles.soak import share
from tests.e2e.driving import history, user_message
from tests.e2e.stack import Stack

SEED = 20261129
_BETWEEN_KILLS = (0.4, 1.6) if share(1) >= 1 else (0.8, 3.2)
"""Seconds. What is killed twice as often takes twice the processor, of which CI has little."""
SERVICES = ("brain-1", "brain-2", "session", "hands", "gateway", "registry", "vault_proxy")
OUTAGE = (anthropic.APIConnectionError, anthropic.InternalServerError)


def worker_of_many_moods(request: Request) -> Reply:
    """Half the turns call tools, of which one leaves a mark for every time that it ran."""
    if request.raw.rfind(b'"tool_result"') > request.raw.rfind(b'"assistant"'):
        return text("done", pieces=3)
    if len(request.raw) % 2:
        return text("nothing to do " * 10, pieces=5)
    return tools(
        ToolUse("bash", {"command": "echo ran >> count; sleep 0.1"}),
        ToolUse("write", {"file_path": "/workspace/note", "content": "hi"}),
    )


@dataclass
class Storm:
    """Clients that send, and a hand that kills, until the time is over."""

    stack: Stack
    sessions: list[str]
    seconds: float
    acknowledged: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    refused: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def send(self, session: str, seed: int) -> None:
        source = random.Random(seed)  # noqa: S311 - a storm must come again as it was
        with self.stack.client(max_retries=0) as client:
            while not self.over.wait(source.uniform(0.05, 1.0)):
                interrupt = source.random() < 0.15
                event = {"type": "user.interrupt"} if interrupt else user_message("go on")
                try:
                    sent = client.beta.sessions.events.send(session, events=[event])
                except OUTAGE:
                    continue  # not acknowledged: nothing is promised
                except anthropic.APIStatusError as error:
                    self.refused.append(str(error))
                    continue
                if not interrupt:
                    self.acknowledged[session] += [echo.id for echo in sent.data or []]

    def kill(self) -> int:
        source = random.Random(SEED)  # noqa: S311 - as above
        killed = 0
        while not self.over.wait(source.uniform(*_BETWEEN_KILLS)):
            with suppress(ProcessLookupError, FileNotFoundError):
                os.kill(self.stack.pid(source.choice(SERVICES)), signal.SIGKILL)
                killed += 1
        return killed

    def rage(self) -> int:
        threads = [
            threading.Thread(target=self.send, args=(session, SEED + number))
            for number, session in enumerate(self.sessions)
        ]
        timer = threading.Timer(self.seconds, self.over.set)
        for thread in (*threads, timer):
            thread.start()
        killed = self.kill()
        for thread in (*threads, timer):
            thread.join()
        return killed


def log_at_rest(client: anthropic.Anthropic, session: str) -> list[Any]:
    """The log once the session is idle and its inbox empty."""
    end = time.monotonic() + 40
    while True:
        assert time.monotonic() < end, f"{session} does not come to rest"
        with suppress(*OUTAGE):
            status = client.beta.sessions.retrieve(session).status
            log = history(client, session)
            if status == "idle" and all(event.processed_at for event in log):
                return log
        time.sleep(0.1)


def check(storm: Storm, logs: dict[str, list[Any]]) -> None:
    """Nothing acknowledged is lost, nothing ran twice, and every session has ended its turns."""
    assert storm.refused == []
    for session, log in logs.items():
        ids = [event.id for event in log]
        assert len(set(ids)) == len(ids)
        sent = storm.acknowledged[session]
        assert [event_id for event_id in ids if event_id in set(sent)] == sent
        uses = [event.id for event in log if event.type == "agent.tool_use"]
        results = [event.tool_use_id for event in log if event.type == "agent.tool_result"]
        assert sorted(results) == sorted(uses)
        commands = sum(e.type == "agent.tool_use" and e.name == "bash" for e in log)
        marks = storm.stack.workspace(session) / "count"
        ran = len(marks.read_text().split()) if marks.exists() else 0
        assert ran <= commands
        ends = {e.stop_reason.type for e in log if e.type == "session.status_idle"}
        assert ends <= {"end_turn"}
