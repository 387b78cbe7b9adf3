"""Golden logs: real sessions of a release, and what its brain would do next at every position.

`logs/RELEASE/NAME.jsonl` is a session as `drover export` writes it, `NAME.decisions.jsonl` what the
harness of that release decided behind each event. Neither is ever written again: a later release
that decides otherwise says so, and why, in `differences.jsonl`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from catalogue.models import load
from cli.transfer.lines import record_of
from drover.event.v1.event_pb2 import Event
from drover.session.v1.lease_pb2 import InputWaiting
from drover.session.v1.session_pb2 import Session
from services.brain.domain.calls import Answerer
from services.brain.domain.decision import Decision, GiveUp, GoIdle, Limits, Mine, Rest
from services.brain.domain.state import State
from services.brain.harness.port import Harness
from services.brain.harness.registry import HarnessRegistry
from services.brain.harness.standard import StandardHarness
from services.session.domain.event import event_type

FOLDER: Final = Path(__file__).parent
LOGS: Final = FOLDER / "logs"
MODELS: Final = FOLDER / "models.json"
"""The window and the prices of the logs' model, whatever comes of them in the catalogue."""
DIFFERENCES: Final = FOLDER / "differences.jsonl"

WAITING: Final = {
    "nothing": InputWaiting(),
    "message": InputWaiting(message=True),
    "interrupt": InputWaiting(interrupt=True),
    "interrupt and message": InputWaiting(interrupt=True, message=True),
    "confirmation": InputWaiting(confirmation=True),
    "log grown": InputWaiting(log_grown=True),
}


@dataclass(frozen=True, slots=True)
class GoldenLog:
    """A session and its log."""

    session: Session
    events: list[Event]

    @classmethod
    def read(cls, path: Path) -> GoldenLog:
        """The log in a file that `drover export` has written."""
        digest, records = hashlib.sha256(), []
        for line in path.read_bytes().splitlines(keepends=True):
            records.append(record_of(line, digest.hexdigest()))
            digest.update(line)
        first, *others = records
        assert others[-1].HasField("end")
        snapshot = first.session
        session = Session(
            id=snapshot.session_id,
            agent=snapshot.agent,
            environment_id=snapshot.environment_id,
            environment=snapshot.environment,
            primary_thread_id=snapshot.threads[0].thread_id,
            budget=snapshot.budget if snapshot.HasField("budget") else None,
        )
        return cls(session, [record.event for record in others if record.HasField("event")])

    def decisions(self) -> Iterator[dict[str, Any]]:
        """What this tree's harness decides on the empty log and behind every event.

        `fresh` is for a brain that has just taken over, `at work` for one that did what the log
        tells of, where it decides otherwise; each by what waits in the inbox, where that makes a
        difference. `shown` digests the conversation that the model would be sent, cache
        breakpoints left out.
        """
        models = load(MODELS)
        standard = StandardHarness(models=models, limits=Limits(prices=models))
        harness = HarnessRegistry(standard).choose(self.session.agent)
        state = harness.begin(self.session)
        yield {"seq": 0, "behind": "", **_step(harness, state)}
        for event in self.events:
            harness.project(state, event, 0.0)
            state.seq = event.seq
            yield {"seq": event.seq, "behind": event_type(event), **_step(harness, state)}


def recorded() -> dict[str, Path]:
    """The golden logs, by release and name."""
    return {
        f"{path.parent.name}/{path.stem}": path
        for path in sorted(LOGS.glob("*/*.jsonl"))
        if not path.stem.endswith(".decisions")
    }


def decisions_file(log: Path) -> Path:
    """Where the decisions on a log are."""
    return log.with_suffix(".decisions.jsonl")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A file with a JSON object on every line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Writes a file with a JSON object on every line."""
    path.write_text("".join(map(_line, lines)), encoding="utf-8")


def differences(was: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Where two steps differ, by the place in the step: what was decided, and what is now."""
    before, after = _flat(was), _flat(now)
    places = sorted(before.keys() | after.keys())
    return {
        place: (before.get(place), after.get(place))
        for place in places
        if before.get(place) != after.get(place)
    }


def _flat(step: dict[str, Any]) -> dict[str, Any]:
    fresh = {name: step["fresh"].get(name, step["fresh"]["nothing"]) for name in WAITING}
    at_work = step.get("at work", fresh)
    flat = {f"fresh, {name}": told for name, told in fresh.items()}
    flat |= {f"at work, {name}": at_work.get(name, at_work["nothing"]) for name in WAITING}
    return flat | {"shown": step.get("shown"), "behind": step["behind"]}


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _step(harness: Harness, state: State) -> dict[str, Any]:
    running = frozenset(call.id for call in state.waiting_for(Answerer.HANDS))
    at_work = Mine(request=state.request, running=running, rested=True)
    step: dict[str, Any] = {"fresh": _by_input(harness, state, Mine())}
    if (other := _by_input(harness, state, at_work)) != step["fresh"]:
        step["at work"] = other
    if "CallModel" in (*step["fresh"].values(), *other.values()):
        step["shown"] = _digest(harness.request(state).body)
    return step


def _by_input(harness: Harness, state: State, mine: Mine) -> dict[str, str]:
    told = {name: _told(harness.decide(state, waiting, mine)) for name, waiting in WAITING.items()}
    usual = told["nothing"]
    return {name: what for name, what in told.items() if name == "nothing" or what != usual}


def _told(decision: Decision) -> str:
    name = type(decision).__name__
    match decision:
        case GoIdle():
            reason = decision.reason
            words = [reason.WhichOneof("reason") or "", *reason.requires_action.event_ids]
            words += ["take_interrupt"] * decision.take_interrupt + ["more"] * decision.more
        case GiveUp():
            words = [decision.error.WhichOneof("error") or ""]
        case Rest():
            words = [str(decision.failures)]
        case _:
            words = [call.id for call in getattr(decision, "calls", ())]
    return " ".join([name, *words])


def _digest(body: bytes) -> str:
    messages = json.loads(body)["messages"]
    for message in messages:
        for block in message["content"]:
            block.pop("cache_control", None)
    return hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:16]
