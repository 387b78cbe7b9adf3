"""What is known of a session from its log."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from services.brain.domain import briefing, mounts, policy
from services.brain.domain.budget import cap_of
from services.brain.domain.codec import DERIVED
from services.brain.domain.context import HISTORY_KEY, Context
from services.brain.domain.instructions import Instructions
from services.brain.domain.links import Links
from services.brain.domain.servers import Servers
from services.brain.domain.transcript import Transcript
from services.brain.domain.usage import UsageTotals

if TYPE_CHECKING:
    from drover.agent.v1.agent_pb2 import SessionAgent
    from drover.event.v1.session_event_pb2 import RefusalDetails
    from drover.session.v1.session_pb2 import Session
    from services.brain.domain.calls import Answerer, Call
    from services.brain.domain.words import Words


class Status(Enum):
    """The status of the session's primary thread (EVENTS §5)."""

    IDLE = "idle"
    RUNNING = "running"
    RESCHEDULING = "rescheduling"
    TERMINATED = "terminated"


@dataclass(slots=True)
class State:
    """Everything that the next step depends on. Written only by the projection."""

    session_id: str
    thread_id: str
    agent: SessionAgent
    permissions: policy.Permissions
    # The workers of its environment answer the calls of the sandbox's tools.
    self_hosted: bool = False
    # What is said of the repositories and memory stores in its sandbox (`briefing.py`), and where
    # its files are, which may come and go.
    mounts: list[str] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    seq: int = 0
    status: Status = Status.IDLE
    transcript: Transcript = field(default_factory=Transcript)
    usage: UsageTotals = field(default_factory=UsageTotals)
    # The most that the session may cost, in cents, and whether it last stopped at that.
    budget: int | None = None
    at_budget: bool = False
    # The last position of a log that was copied from another session, whose usage it tells.
    copied_seq: int = 0
    # The model request without an end, and one that was made for it before its end (the judge's).
    request: str = ""
    side_request: str = ""
    # Blocks of the response that `request` is getting, and its calls.
    response: list[bytes] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    # Input that came before every call had its result.
    deferred: list[bytes] = field(default_factory=list)
    # The model is to be asked (again) before the turn can end.
    needs_model: bool = False
    interrupted: bool = False
    refusal: RefusalDetails | None = None
    context: Context = field(default_factory=Context)
    instructions: Instructions = field(default_factory=Instructions)
    # Names of the tools that were called.
    called: list[str] = field(default_factory=list)
    # What the agent's MCP servers offer.
    servers: Servers = field(default_factory=Servers)
    # The URLs that it was shown, which web_fetch may ask for.
    links: Links = field(default_factory=Links)
    # What has been told to have gone wrong beside, since the session last began to run.
    told: list[bytes] = field(default_factory=list)
    # What people have said (`words.py`).
    words: Words = field(default_factory=list)
    requests: int = 0
    continuations: int = 0
    # Failed requests in a row: told of by an error, and lost with the brain that made them.
    failures: int = 0
    # Seconds that the server of the last one asked to wait for; 0 where it named none.
    retry_after: float = 0.0
    lost: int = 0
    # Bytes that the harness derives from `agent`.
    prefix: bytes = field(default=b"", metadata=DERIVED)

    def open_calls(self) -> list[Call]:
        """Calls without a result, in the model's order."""
        return [call for call in self.calls.values() if call.result is None]

    def waiting_for(self, answerer: Answerer) -> list[Call]:
        """Open calls that `answerer` has to answer, in the model's order."""
        return [
            call
            for call in self.calls.values()
            if call.result is None and call.answerer is answerer
        ]


def begin(session: Session) -> State:
    """The state of a session with an empty log."""
    return State(
        session_id=session.id,
        thread_id=session.primary_thread_id,
        agent=session.agent,
        permissions=_permissions(session.agent, Servers(), trimmed=False),
        self_hosted=session.environment.HasField("self_hosted"),
        mounts=briefing.repositories(session),
        memory=briefing.memory(session),
        files=mounts.files(session),
        copied_seq=session.forked_from.seq,
        budget=cap_of(session.budget) if session.HasField("budget") else None,
    )


def adopt(state: State, agent: SessionAgent) -> None:
    """Goes on with `agent`, of which the session has kept a newer copy."""
    if agent != state.agent:
        state.agent = agent
        review(state)


def renew(state: State, session: Session) -> None:
    """Goes on with a newer copy of the session."""
    adopt(state, session.agent)
    if (files := mounts.files(session)) != state.files:
        state.files = files
        state.prefix = b""


def trim(state: State) -> None:
    """From now on some of what the model was shown stands in the log alone: let it look there."""
    if not state.context.trimmed:
        state.context.trimmed = True
        review(state)


def review(state: State) -> None:
    """Something that the agent's tools depend on is another than it was."""
    state.permissions = _permissions(state.agent, state.servers, trimmed=state.context.trimmed)
    state.prefix = b""


def _permissions(agent: SessionAgent, servers: Servers, *, trimmed: bool) -> policy.Permissions:
    history = trimmed or agent.metadata.get(HISTORY_KEY) == "on"
    own = policy.evaluate(agent.tools, history=history)
    by_name, remote = servers.permissions(agent)
    for name in own.by_name.keys() & remote.keys():
        # From an update of the agent on, until the servers have been asked again.
        del by_name[name], remote[name]
    return policy.Permissions(own.by_name | by_name, remote)
