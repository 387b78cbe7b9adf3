"""A model that says what the seed has it say, and refuses what the Messages API would refuse."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from services.brain.domain.context import HISTORY_TOOL
from services.brain.harness.compaction import PROMPT
from services.brain.model.port import ModelError, ModelErrorKind
from tests.doubles.scripted_model import response, text, thinking, tool
from tests.simulation import servers
from tests.simulation.catalog import SMALL, WINDOW
from tests.simulation.work import current_work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from random import Random

    from tests.simulation.loop import SimLoop
    from tests.simulation.trace import Trace
    from tests.simulation.work import Work

Raw = dict[str, Any]

_SUMMARY: Final = PROMPT[:40]
_OVERLOADED: Final = 529
_TOO_MANY: Final = 429


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as a brain has sent it."""

    work: Work
    body: bytes
    # It is about another request (the judge's), and the log does not lead to it.
    beside: bool


class Temper:
    """How often what goes wrong, as shares of all requests."""

    def __init__(self) -> None:
        self.fails = 0.0
        self.cuts = 0.0
        self.hangs = 0.0
        self.odd = 0.0
        self.tools = 0.5

    def calm(self) -> None:
        """From now on every request is answered, and soon."""
        self.fails = self.cuts = self.hangs = 0.0
        self.odd = self.tools = 0.2


class Model:
    """Implements `ModelClient` for every brain. `faults` is what was wrong with requests."""

    provider = "simulation"

    def __init__(self, loop: SimLoop, rng: Random, trace: Trace) -> None:
        self._loop = loop
        self._rng = rng
        self._trace = trace
        self._numbers = itertools.count(1)
        self.temper = Temper()
        self.asked: list[Asked] = []
        self.faults: list[str] = []

    @asynccontextmanager
    async def stream(
        self, body: bytes, *, betas: Sequence[str] = ()
    ) -> AsyncIterator[AsyncIterator[Mapping[str, Any]]]:
        work = current_work()
        number = next(self._numbers)
        self._trace.note(work, "model", number, len(body))
        request = json.loads(body)
        beside = isinstance(request.get("system"), str)
        self.asked.append(Asked(work, bytes(body), beside))
        self.faults += [f"{work}, request {number}: {fault}" for fault in faults_of(request)]
        await asyncio.sleep(0.001 + 0.2 * self._rng.random() ** 4)
        if self._rng.random() < self.temper.fails:
            raise self._failure()
        tokens = len(body) // 4
        if request["model"] == SMALL and tokens > WINDOW:
            raise ModelError(
                ModelErrorKind.REQUEST_FAILED,
                "too long",
                status=400,
                retryable=False,
                overflow=True,
            )
        usage = {"input_tokens": tokens, "output_tokens": 1}
        yield self._events(self._verdicts(usage) if beside else self._reply(request, number, usage))

    async def _events(self, events: list[Raw]) -> AsyncIterator[Raw]:
        rng = self._rng
        cut = int(rng.random() * len(events)) if rng.random() < self.temper.cuts else -1
        hang = int(rng.random() * len(events)) if rng.random() < self.temper.hangs else -1
        for index, event in enumerate(events):
            if index == cut:
                raise ModelError(ModelErrorKind.CONNECTION, "the stream was cut", retryable=True)
            if index == hang:
                await asyncio.sleep(30 * rng.random())
            if rng.random() < 0.3:
                await asyncio.sleep(0.02 * rng.random())
            yield event

    def _failure(self) -> ModelError:
        draw = self._rng.random()
        after = 5 * self._rng.random() if self._rng.random() < 0.3 else None
        if draw < 0.4:
            kind, status = ModelErrorKind.OVERLOADED, _OVERLOADED
        elif draw < 0.7:
            kind, status = ModelErrorKind.RATE_LIMITED, _TOO_MANY
        elif draw < 0.9:
            return ModelError(ModelErrorKind.CONNECTION, "no connection", retryable=True)
        else:
            return ModelError(
                ModelErrorKind.REQUEST_FAILED, "not like this", status=400, retryable=False
            )
        return ModelError(kind, "later", status=status, retry_after=after, retryable=True)

    def _verdicts(self, usage: Raw) -> list[Raw]:
        draw = self._rng.random()
        if draw < 0.1:
            return response(text("I would rather not say."), usage=usage)
        said = "allow" if draw < 0.6 else "deny" if draw < 0.8 else "ask"
        # It does not count the calls: where there is another number of them, a person is asked.
        return response(text(f'{{"verdicts":[{{"call":1,"verdict":"{said}"}}]}}'), usage=usage)

    def _reply(self, request: Raw, number: int, usage: Raw) -> list[Raw]:
        rng = self._rng
        if rng.random() < self.temper.odd:
            return self._odd(number, usage)
        if _asks_for_summary(request):
            return response(text(f"summary {number}"), usage=usage)
        blocks = []
        if rng.random() < 0.2:
            blocks.append(thinking(f"thought {number}", f"signature{number}"))
        if rng.random() < 0.7:
            words = "so it is " * int(rng.random() ** 4 * 60)
            blocks.append(text(f"answer {number} {words}", pieces=1 + int(rng.random() * 3)))
        # Long conversations call fewer tools, so that every turn ends.
        eager = self.temper.tools / (1 + len(request["messages"]) / 12)
        if not blocks or rng.random() < eager:
            count = 1 + int(rng.random() ** 2 * 3)
            offered = {one["name"] for one in request.get("tools", ())}
            blocks += [self._call(number, at, offered) for at in range(count)]
        return response(*blocks, usage=usage)

    def _call(self, number: int, at: int, offered: set[str]) -> list[Raw]:
        mark, call_id = f"mark-{number}-{at}", f"toolu_{number}_{at}"
        if servers.TOOL in offered and self._rng.random() < 0.6:
            return tool(servers.TOOL, {"mark": mark}, call_id)
        draw = self._rng.random()
        if draw < 0.1 and HISTORY_TOOL in offered:
            return tool(HISTORY_TOOL, {"text": "mark"}, call_id)
        calls: list[tuple[float, str, Any]] = [
            (0.5, "bash", {"command": mark}),
            (0.6, "read", {"file_path": mark}),
            (0.75, "write", {"file_path": mark, "content": "x"}),
            (0.9, "ask_owner", {"question": mark}),
            (0.94, "edit", {"file_path": mark, "old_string": "a", "new_string": "b"}),
            (0.97, "no_such_tool", {"a": 1}),
            (1.0, "bash", '{"command": '),
        ]
        name, given = next((name, given) for upto, name, given in calls if draw < upto)
        return tool(name, given, call_id)

    def _odd(self, number: int, usage: Raw) -> list[Raw]:
        draw = self._rng.random()
        if draw < 0.4:
            return response(text(f"cut {number}"), stop_reason="max_tokens", usage=usage)
        if draw < 0.6:
            details = {"type": "refusal", "category": "cyber", "explanation": "no"}
            return response(stop_reason="refusal", stop_details=details, usage=usage)
        if draw < 0.8:
            return response(text(f"pause {number}"), stop_reason="pause_turn", usage=usage)
        return response(usage=usage)


def _asks_for_summary(request: Raw) -> bool:
    last = request["messages"][-1]["content"][-1]
    return bool(last.get("text", "").startswith(_SUMMARY))


def _paused(message: Raw) -> bool:
    """Whether the model has ended a reply before it was done, to be asked to go on."""
    return any(block.get("text", "").startswith("pause") for block in message["content"])


def faults_of(request: Raw) -> list[str]:
    """What the Messages API would refuse in a request, or ought never to be sent."""
    faults: list[str] = []
    messages = [one for one in request["messages"] if one["role"] != "system"]
    if not messages or messages[0]["role"] != "user":
        faults.append("the first message is not the user's")
    if messages and messages[-1]["role"] != "user" and not _paused(messages[-1]):
        faults.append("the last message is not the user's")
    open_calls: list[str] = []
    before = ""
    for at, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == before:
            faults.append(f"messages {at - 1} and {at} are both the {role}'s")
        before = role
        if not content:
            faults.append(f"message {at} is empty")
        blocks = content if isinstance(content, list) else []
        results = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        if sorted(results) != sorted(open_calls):
            faults.append(f"message {at} answers {results} where {open_calls} were called")
        kinds = [one["type"] for one in blocks]
        if results and kinds[: len(results)] != ["tool_result"] * len(results):
            faults.append(f"message {at} has something before its results")
        open_calls = [one["id"] for one in blocks if one["type"] == "tool_use"]
    if open_calls:
        faults.append(f"{open_calls} were never answered")
    return faults
