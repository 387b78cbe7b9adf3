"""Logs for the unit suites: built by hand, or by running the pure core against a random world."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

from drover.agent.v1.agent_pb2 import SessionAgent
from drover.agent.v1.model_pb2 import ModelConfig
from drover.agent.v1.tool_pb2 import (
    PERMISSION_POLICY_TYPE_ALWAYS_ASK,
    AgentToolConfig,
    AgentToolset,
    CustomTool,
    PermissionPolicy,
    Tool,
)
from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import PlainError, SessionError
from drover.event.v1.user_event_pb2 import (
    CONFIRMATION_RESULT_ALLOW,
    CONFIRMATION_RESULT_DENY,
    UserCustomToolResult,
    UserInterrupt,
    UserMessage,
    UserToolConfirmation,
    UserToolResult,
)
from drover.session.v1.lease_pb2 import InputWaiting
from drover.session.v1.session_pb2 import Session
from services.brain.domain import events, response
from services.brain.domain.calls import INTERRUPTED, Answerer, Call
from services.brain.domain.decision import (
    AwaitTools,
    CallModel,
    CloseRequest,
    Compact,
    Decision,
    EnterRunning,
    GiveUp,
    GoIdle,
    Interrupt,
    Mine,
    Refuse,
    Release,
    Rest,
    RunTools,
    Stop,
    TakeControl,
    TakeMessage,
)
from services.brain.domain.state import State
from services.brain.harness.clearing import ClearingPolicy
from services.brain.harness.compaction import CompactionPolicy
from services.brain.harness.standard import StandardHarness
from services.brain.loop import summary
from tests.doubles import scripted_model as model

HARNESS = StandardHarness()

# One whose window is soon full, so that it clears and compacts all the time.
CRAMPED = StandardHarness(
    windows=lambda _: 6_000,
    clearing=ClearingPolicy(begin=0.3, least=0.1, keep=1),
    compaction=CompactionPolicy(begin=0.7, tail=0.2, reply=100),
)


class Numbered:
    """Ids that count."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, prefix: str, /) -> str:
        return f"{prefix}_{next(self._numbers)}"


def agent(*tools: Tool, model_id: str = "claude-test") -> SessionAgent:
    return SessionAgent(
        id="agent_1",
        name="Worker",
        model=ModelConfig(id=model_id),
        system="Be brief.",
        tools=tools or (Tool(agent_toolset=AgentToolset()),),
    )


def session(*tools: Tool, model_id: str = "claude-test", self_hosted: bool = False) -> Session:
    made = Session(id="sesn_1", primary_thread_id="sthr_1", agent=agent(*tools, model_id=model_id))
    if self_hosted:
        made.environment.self_hosted.SetInParent()
    return made


def every_kind_of_tool() -> list[Tool]:
    ask = PermissionPolicy(type=PERMISSION_POLICY_TYPE_ALWAYS_ASK)
    toolset = AgentToolset(
        configs=[
            AgentToolConfig(name="write", permission_policy=ask),
            AgentToolConfig(name="edit", enabled=False),
        ]
    )
    custom = CustomTool(name="ask_user", description="Asks.", input_schema='{"type":"object"}')
    return [Tool(agent_toolset=toolset), Tool(custom=custom)]


def message(text: str) -> Event:
    return Event(user_message=UserMessage(content=[events.text(text)]))


def fold(
    of: Session,
    log: Iterable[Event],
    state: State | None = None,
    harness: StandardHarness = HARNESS,
) -> State:
    state = state or harness.begin(of)
    for event in log:
        harness.project(state, event, 0.0)
    return state


class World:
    """A session, its model, its hands and its users, moved on by one random step at a time.

    The brain's part is played by `decide` alone, so every log it makes is one that brains make.
    """

    def __init__(self, seed: int, harness: StandardHarness = HARNESS) -> None:
        self.harness = harness
        # Whether its model refuses now and then.
        self.refuses = True
        self.random = random.Random(seed)  # noqa: S311
        self.session = session(*every_kind_of_tool(), self_hosted=seed % 3 == 0)
        self.log: list[Event] = []
        self.inbox: list[Event] = []
        self.state = harness.begin(self.session)
        self.factory = events.EventFactory(Numbered(), "sthr_1", "Worker")
        self.request = ""
        self.rested = False
        self.running: set[str] = set()

    @property
    def waiting(self) -> InputWaiting:
        kinds = {event.WhichOneof("payload") for event in self.inbox}
        return InputWaiting(
            interrupt="user_interrupt" in kinds,
            confirmation="user_tool_confirmation" in kinds,
            message="user_message" in kinds,
        )

    @property
    def answerable(self) -> list[Call]:
        """The calls that clients and workers answer."""
        ours = (Answerer.CLIENT, Answerer.WORKER)
        return [call for call in self.state.open_calls() if call.answerer in ours]

    def step(self) -> Decision | None:
        """Something happens: a client sends, a brain dies, or a brain takes a step."""
        chance = self.random.random()
        if chance < 0.15:
            self.client()
            return None
        if chance < 0.2:
            self.request, self.rested = "", False
            self.running.clear()
            return None
        mine = Mine(self.request, frozenset(self.running), self.rested)
        decision = self.harness.decide(self.state, self.waiting, mine)
        self.perform(decision)
        return decision

    def client(self) -> None:
        answerable = self.answerable
        kind = self.random.choice(("message", "message", "answer", "answer", "interrupt"))
        if kind == "message":
            if not answerable:
                self.inbox.append(self._named(message(f"message {len(self.log)}")))
        elif kind == "interrupt":
            self.inbox.append(self._named(Event(user_interrupt=UserInterrupt())))
        elif answerable:
            self.answer(self.random.choice(answerable).id)

    def answer(self, call_id: str) -> None:
        call = self.state.calls[call_id]
        if call.answerer is Answerer.WORKER:
            worked = UserToolResult(tool_use_id=call_id, content=[events.text("worked")])
            self.append(self._named(Event(user_tool_result=worked)))
            return
        if not call.asked:
            content = [events.text("answer")]
            answer = UserCustomToolResult(custom_tool_use_id=call_id, content=content)
            self.append(self._named(Event(user_custom_tool_result=answer)))
            return
        verdict = self.random.choice((CONFIRMATION_RESULT_ALLOW, CONFIRMATION_RESULT_DENY))
        confirmation = UserToolConfirmation(tool_use_id=call_id, result=verdict)
        self.inbox.append(self._named(Event(user_tool_confirmation=confirmation)))

    def append(self, *more: Event) -> None:
        for event in more:
            event.seq = len(self.log) + 1
            event.processed_at.seconds = 1_700_000_000 + event.seq
            self.log.append(event)
            self.harness.project(self.state, event, 0.0)

    def take(self, *kinds: str, messages: int = 0) -> None:
        taken = [event for event in self.inbox if event.WhichOneof("payload") in kinds]
        waiting = [event for event in self.inbox if event.HasField("user_message")]
        if messages and not any(event.HasField("user_interrupt") for event in taken):
            taken += waiting[:messages]
        self.inbox = [event for event in self.inbox if event not in taken]
        self.append(*taken)

    def perform(self, decision: Decision) -> None:  # noqa: C901, PLR0912
        control = ("user_interrupt", "user_tool_confirmation")
        match decision:
            case TakeMessage():
                self.take(*control, messages=1)
                start = self.factory.request_start()
                self.append(*self.factory.running(), start)
                self.request = start.id
            case TakeControl():
                self.take(*control)
            case EnterRunning():
                self.append(*self.factory.running())
            case CallModel() | Compact():
                self.call_model(compact=isinstance(decision, Compact))
            case RunTools(calls):
                self.running |= {call.id for call in calls}
            case AwaitTools():
                call_id = self.random.choice(sorted(self.running))
                self.running.discard(call_id)
                told = "ran " * (1 if self.harness is HARNESS else self.random.choice((1, 500)))
                self.append(self.factory.result(call_id, [events.text(told)], is_error=False))
            case Refuse(calls):
                for call in calls:
                    refusal = [events.text(call.refusal)]
                    self.append(self.factory.result(call.id, refusal, is_error=True))
            case Interrupt(calls):
                self.running.clear()
                for call in calls:
                    text = [events.text(INTERRUPTED)]
                    stopped = self.factory.stopped(call, INTERRUPTED)
                    result = self.factory.result(call.id, text, is_error=True)
                    self.append(stopped if call.with_worker else result)
            case CloseRequest():
                self.append(self.factory.request_failed(self.state.request))
                self.request = ""
            case Rest():
                self.rested = True
            case GiveUp(error):
                self.take(*control, messages=len(self.inbox))
                self.append(self.factory.error(error, retrying=False))
                self.idle(events.exhausted())
            case GoIdle():
                if decision.take_interrupt:
                    self.take(*control)
                self.idle(decision.reason)
            case Release() | Stop():
                pass

    def idle(self, reason: object) -> None:
        usage = self.state.usage.snapshot(0.0)
        self.append(*self.factory.idle(reason, None, usage, None))  # type: ignore[arg-type]
        self.request, self.rested = "", False

    def call_model(self, *, compact: bool) -> None:
        if not self.state.request:
            start = self.factory.request_start()
            self.append(start)
            self.request = start.id
            return
        request, self.request, self.rested = self.state.request, "", False
        if self.random.random() < 0.15:
            error = SessionError(message="no", model_overloaded_error=PlainError())
            self.append(
                self.factory.request_failed(request),
                self.factory.error(error, retrying=True),
                *self.factory.rescheduled(),
            )
            return
        if self.harness is not HARNESS and self.random.random() < 0.1:
            self.append(self.factory.request_failed(request, overflow=True))
            return
        usage = {"input_tokens": len(self.harness.request(self.state).body) // 3}
        if compact:
            raws = model.response(model.text("what was said"), usage=usage)
        else:
            raws = self.reply(usage)
        assembler = response.ResponseAssembler(self.factory)
        for raw in raws:
            assembler.feed(raw)
        events_ = assembler.finish(request, self.state.permissions)
        self.append(*(summary.of(events_, self.factory, last_try=True) if compact else events_))

    def reply(self, usage: model.Raw) -> list[model.Raw]:
        blocks = []
        if self.random.random() < 0.5:
            blocks.append(model.thinking("hm"))
        blocks.append(model.text("some words"))
        names = ("bash", "write", "edit", "ask_user", "nonsense")
        for number in range(self.random.choice((0, 0, 1, 2, 3))):
            arguments = self.random.choice(({"command": "ls"}, '{"broken'))
            blocks.append(model.tool(self.random.choice(names), arguments, f"toolu_{number}"))
        if self.random.random() < 0.2:
            blocks.append(model.thinking("cut off while"))
        odd = self.random.random()
        if odd < 0.1 and self.refuses:
            return model.response(*blocks, stop_reason="refusal", usage=usage)
        reason = "max_tokens" if odd < 0.2 else None
        return model.response(*blocks, stop_reason=reason, usage=usage)

    def _named(self, event: Event) -> Event:
        event.id = self.factory.new_id()
        return event
