"""Jobs of sessions whose tools workers run, and what their logs have to say of them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from tests.doubles.messages_api import Reply, ToolUse, text, tools
from tests.doubles.messages_wire import Request
from tests.e2e.driving import history, send, texts
from tests.e2e.workers import Desk

_CALL_SECONDS: Final = 0.4


class Jobs:
    """A job for each of so many sessions, with so many pairs of calls, one after the other."""

    def __init__(self, desk: Desk, sessions: int, rounds: int) -> None:
        self._desk, self._rounds = desk, rounds
        desk.stack.model.default(self._answer)
        self._sessions = {str(number): desk.session().id for number in range(sessions)}
        self._unfinished = list(self._sessions.values())
        self.calls = 2 * rounds * sessions

    def begin(self) -> None:
        """Gives every session its job."""
        for job, session_id in self._sessions.items():
            send(self._desk.client, session_id, f"job {job}")

    def finished(self) -> bool:
        """Whether all sessions are at rest."""
        if self._unfinished and self._at_rest(self._unfinished[-1]):
            self._unfinished.pop()
        return not self._unfinished

    def check(self) -> int:
        """Holds every log against what its job was; answers how many calls were run again."""
        return sum(self._check(job, session_id) for job, session_id in self._sessions.items())

    def is_at_a_call(self, job: str) -> bool:
        """Whether a call of a job has begun that has no result."""
        events = self._desk.client.beta.sessions.events
        results = list(events.list(self._sessions[job], types=["user.tool_result"]))
        return len(results) < len(self._marks(job))

    def no_work_is_left(self) -> bool:
        """Whether the environment's queue knows that it is all done."""
        return {item["state"] for item in self._desk.work(limit=100)} == {"stopped"}

    def _answer(self, request: Request) -> Reply:
        """The model's part of every job: some rounds of calls, and then an end."""
        job = re.findall(r"job (\d+)", request.newest_user_text)[-1]
        made = sum(message["role"] == "assistant" for message in request.body["messages"])
        if made == self._rounds:
            return text(f"finished {job}")
        pair = range(2 * made, 2 * made + 2)
        return tools(*(ToolUse("bash", {"command": _command(job, number)}) for number in pair))

    def _at_rest(self, session_id: str) -> bool:
        events = self._desk.client.beta.sessions.events
        last = events.list(session_id, limit=1, order="desc").data[0]
        return last.type == "session.status_idle" and last.stop_reason.type == "end_turn"

    def _check(self, job: str, session_id: str) -> int:
        log = history(self._desk.client, session_id)
        assert texts(log, "agent.message") == [f"finished {job}"]
        calls = {event.id: event for event in log if event.type == "agent.tool_use"}
        results = [event for event in log if event.type == "user.tool_result"]
        assert [event.tool_use_id for event in results if event.is_error] == []
        assert Counter(event.tool_use_id for event in results) == dict.fromkeys(calls, 1)
        for result in results:
            number = calls[result.tool_use_id].input["command"].rpartition(".")[2]
            assert result.content[0].text.strip() == f"did {job}.{number}"
        marks = self._marks(job)
        assert marks.keys() == {str(number) for number in range(2 * self._rounds)}
        return marks.total() - len(marks)

    def _marks(self, job: str) -> Counter[str]:
        """How often each call of a job was begun."""
        return Counter((self._desk.folder / "work" / f"ran-{job}").read_text().split()[::2])


def _command(job: str, number: int) -> str:
    """What a call does: it leaves a mark, takes its time, and says which it was."""
    return f"echo {number} $PPID >> ran-{job}; sleep {_CALL_SECONDS}; echo did {job}.{number}"
