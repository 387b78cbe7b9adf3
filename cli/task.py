"""One task in a session of its own: running it, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.follow import Follower

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anthropic import Anthropic
    from anthropic.types.beta import BetaEnvironment, BetaManagedAgentsAgent
    from anthropic.types.beta.sessions import BetaManagedAgentsSessionStatusIdleEvent

    from cli.follow import Event

NAME = "drover-run"
SYSTEM = (
    "You work in a Linux sandbox whose working directory is /workspace. Do the task with the "
    "tools, check what you did, and answer briefly with the result. Files for the user go to "
    "/mnt/session/outputs."
)

# Exit codes of commands that run a task, by why the session stopped.
EXIT_CODES = {
    "end_turn": 0,
    "requires_action": 3,
    "retries_exhausted": 4,
    "budget_reached": 5,
    "refusal": 6,
    "terminated": 7,
    "interrupted": 130,
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ended: the stop reason, `terminated` or `interrupted`; and which calls wait."""

    reason: str
    waiting: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code that tells of it; 1 for a reason that is newer than this command."""
        return EXIT_CODES.get(self.reason, 1)


class Task:
    """A user message to a fresh session, and the turn that it starts.

    `allow` is asked, by the tool's name, about each call that waits for permission; without it such
    a call ends the turn. One that waits for a worker of the environment does not.
    """

    def __init__(
        self,
        client: Anthropic,
        session_id: str,
        *,
        show: Callable[[Event], None],
        allow: Callable[[str], bool] | None = None,
    ) -> None:
        self._events = client.beta.sessions.events
        self._session_id = session_id
        self._show = show
        self._allow = allow
        self._follower = Follower(client, session_id)
        self._asking: dict[str, str] = {}
        self._running: set[str] = set()
        self._said = False
        self._begun = False

    def run(self, text: str) -> Ending:
        """Sends the message and shows what happens until the session waits for its user.

        A KeyboardInterrupt interrupts the session, a second one goes on to the caller. So does one
        that comes before there is anything to interrupt.
        """
        try:
            return self._follow(self._follower.follow(lambda: self._say(text)))
        except KeyboardInterrupt:
            if not self._said:
                raise
            self._events.send(self._session_id, events=[{"type": "user.interrupt"}])
            ending = self._follow(self._follower.follow())
            return Ending("interrupted") if ending.reason == "end_turn" else ending

    def _say(self, text: str) -> None:
        self._said = True
        self._events.send(
            self._session_id,
            events=[{"type": "user.message", "content": [{"type": "text", "text": text}]}],
        )

    def _follow(self, events: Iterator[Event]) -> Ending:
        for event in events:
            self._show(event)
            if event.type == "user.message":
                self._begun = True
            elif event.type == "agent.tool_use":
                if event.evaluated_permission == "ask":
                    self._asking[event.id] = event.name
                else:
                    self._running.add(event.id)
            elif event.type == "session.status_idle" and self._begun:
                ending = _ending_of(event)
                if not self._answered(ending):
                    return ending
        return Ending("terminated")

    def _answered(self, ending: Ending) -> bool:
        """Whether every call that waits is, or will be, answered, so that the turn goes on.

        Built-in tools that wait and are allowed to run are with the workers of the environment.
        """
        waiting = [call for call in ending.waiting if call in self._asking]
        if not ending.waiting or not self._running.union(waiting).issuperset(ending.waiting):
            return False
        if self._allow is None:
            return not waiting
        for call in waiting:
            self._running.add(call)
            allowed = self._allow(self._asking.pop(call))
            self._events.send(
                self._session_id,
                events=[
                    {
                        "type": "user.tool_confirmation",
                        "tool_use_id": call,
                        "result": "allow" if allowed else "deny",
                    }
                ],
            )
        return True


def default_agent(client: Anthropic, model: str) -> BetaManagedAgentsAgent:
    """The agent for tasks that name none: all built-in tools, made on first use."""
    for agent in client.beta.agents.list():
        if agent.name == NAME and agent.model.id == model and agent.system == SYSTEM:
            return agent
    return client.beta.agents.create(
        name=NAME, model=model, system=SYSTEM, tools=[{"type": "agent_toolset_20260401"}]
    )


def default_environment(client: Anthropic) -> BetaEnvironment:
    """The environment for tasks that name none, made on first use."""
    for environment in client.beta.environments.list():
        if environment.name == NAME:
            return environment
    return client.beta.environments.create(name=NAME)


def _ending_of(event: BetaManagedAgentsSessionStatusIdleEvent) -> Ending:
    reason = event.stop_reason
    if reason.type == "requires_action":
        return Ending(reason.type, tuple(reason.event_ids))
    return Ending(reason.type)
