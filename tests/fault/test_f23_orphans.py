"""F23, as a whole: sessions are deleted as their turns end, and no sandbox or file stays behind."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from pathlib import Path

import anthropic
import httpx2
import pytest

from tests.doubles import traces
from tests.doubles.messages_api import Reply, Request, ToolUse, text, tools
from tests.doubles.soak import limit, share
from tests.e2e.driving import new_session, send
from tests.e2e.stack import Stack

SESSIONS = 40
AT_ONCE = 5
OVER = 60.0
"""Seconds by when everything has ended."""
KEPT = {"vault_proxy.audit", "vault_proxy.revocations"}
"""Who used what for a session is told long after it; that its grants are void, until they end."""


def busy(request: Request) -> Reply:
    """Every message is answered after a tool call that leaves a process behind."""
    if request.raw.rfind(b'"tool_result"') > request.raw.rfind(b'"assistant"'):
        return text("done")
    return tools(ToolUse("bash", {"command": "sleep 1000 & echo here > here"}))


def descendants(pid: int) -> set[int]:
    """Every process below another."""
    found: set[int] = set()
    pending = [pid]
    while pending:
        for children in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
            with suppress(OSError):  # it has just ended
                pending += (below := [int(one) for one in children.read_text().split()])
                found.update(below)
    return found


def shells(pid: int) -> set[int]:
    """Those of them that run sessions' commands. Each is the last that its sandbox starts."""
    found = set()
    for one in descendants(pid):
        with suppress(OSError):
            if b"--noprofile" in Path(f"/proc/{one}/cmdline").read_bytes():
                found.add(one)
    return found


class Life:
    """One session, from its first message to its deletion, with a client that keeps sending."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack = stack
        self._chance = random.Random(seed)  # noqa: S311 - to come again
        self.session_id = ""
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with self._stack.client(max_retries=0) as client:
                self._live(client)
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.failure = error

    def _live(self, client: anthropic.Anthropic) -> None:
        session = new_session(client)
        self.session_id = session.id
        send(client, session.id, "work")
        sender = threading.Thread(target=self._send_on, args=(client,))
        sender.start()
        while True:
            deleted = httpx2.delete(
                f"{self._stack.url}/v1/sessions/{session.id}",
                headers=self._stack.headers,
                timeout=30,
            )
            if deleted.status_code == 200:
                break
            assert deleted.status_code == 400, deleted.text  # it runs
        sender.join()

    def _send_on(self, client: anthropic.Anthropic) -> None:
        """Now and then another message or an interrupt, until the session takes none."""
        for _ in range(self._chance.randrange(4)):
            threading.Event().wait(self._chance.uniform(0, 0.3))
            event = {"type": "user.interrupt"}
            with suppress(anthropic.NotFoundError):
                if self._chance.random() < 0.5:
                    send(client, self.session_id, "more")
                else:
                    client.beta.sessions.events.send(self.session_id, events=[event])


@pytest.mark.timeout(limit(120))
def test_sessions_deleted_as_they_end_leave_no_sandbox_and_no_file(own_stack: Stack) -> None:
    stack = own_stack
    stack.model.default(busy)
    hands, others = stack.pid("hands"), stack.sandboxes()
    stack.wait_for(lambda: shells(hands), "a spare sandbox")
    spare = len(descendants(hands))
    lives = [Life(stack, seed) for seed in range(int(share(SESSIONS)))]
    for first in range(0, len(lives), AT_ONCE):
        threads = [threading.Thread(target=one.run) for one in lives[first : first + AT_ONCE]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [one.failure for one in lives if one.failure] == []
    for one in lives:
        stack.wait_for(lambda one=one: not left(stack, one.session_id), "its end", OVER)
    assert stack.sandboxes() <= others
    stack.wait_for(lambda: len(descendants(hands)) <= spare, "the end of the sandboxes", OVER)


def left(stack: Stack, session_id: str) -> object:
    """What there is still of a session."""
    rows = traces.in_sqlite(stack.data, session_id).keys() - KEPT
    files = traces.on_disk(stack.data / "hands", session_id)
    return rows or files
