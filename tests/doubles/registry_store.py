"""In-memory stores of the registry; the contract suite holds them to what the real ones do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from catalogue.resources.stamps import micros
from drover.agent.v1.agent_pb2 import Agent
from drover.environment.v1.environment_pb2 import Environment
from services.registry.domain.missing import name_taken, no_agent, no_environment
from tests.doubles.answers import MemoryAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from catalogue.resources.once import Once
    from chassis.clock import Clock
    from services.registry.domain.ports import Listing

M = TypeVar("M", Agent, Environment)


@dataclass
class _Versions:
    workspace_id: str
    stored: list[Agent] = field(default_factory=list)
    archived_at: datetime | None = None

    def at(self, version: int) -> Agent:
        return _copy(self.stored[version - 1], self.archived_at)


class MemoryAgentStore:
    """Implements `AgentStore`."""

    def __init__(self, clock: Clock) -> None:
        self._agents: dict[str, _Versions] = {}
        self._answers = MemoryAnswers(clock)

    async def add(self, workspace_id: str, agent: Agent, once: Once[Agent] | None = None) -> Agent:
        def write() -> Agent:
            self._agents[agent.id] = _Versions(workspace_id, [_copy(agent)])
            return agent

        return self._answers.write(write, once)

    async def get(self, workspace_id: str, agent_id: str, version: int | None = None) -> Agent:
        versions = self._find(workspace_id, agent_id)
        latest = len(versions.stored)
        if version is not None and version > latest:
            raise no_agent(agent_id, version)
        return versions.at(version or latest)

    async def revise(
        self,
        workspace_id: str,
        agent_id: str,
        change: Callable[[Agent], Agent],
        once: Once[Agent] | None = None,
    ) -> Agent:
        def write() -> Agent:
            versions = self._find(workspace_id, agent_id)
            stored = versions.at(len(versions.stored))
            changed = change(stored)
            if changed is not stored:
                versions.stored.append(_copy(changed))
            return changed

        return self._answers.write(write, once)

    async def archive(
        self, workspace_id: str, agent_id: str, at: datetime, once: Once[Agent] | None = None
    ) -> Agent:
        def write() -> Agent:
            versions = self._find(workspace_id, agent_id)
            versions.archived_at = versions.archived_at or at
            return versions.at(len(versions.stored))

        return self._answers.write(write, once)

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Agent]:
        own = [one for one in self._agents.values() if one.workspace_id == workspace_id]
        return _newest([one.at(len(one.stored)) for one in own], listing)

    async def versions(self, workspace_id: str, agent_id: str, listing: Listing) -> Sequence[Agent]:
        versions = self._find(workspace_id, agent_id)
        before = listing.after.order if listing.after else len(versions.stored) + 1
        return [versions.at(number) for number in range(before - 1, 0, -1)][: listing.limit]

    def _find(self, workspace_id: str, agent_id: str) -> _Versions:
        versions = self._agents.get(agent_id)
        if versions is None or versions.workspace_id != workspace_id:
            raise no_agent(agent_id)
        return versions


@dataclass
class _Kept:
    workspace_id: str
    stored: Environment
    archived_at: datetime | None = None

    def copy(self) -> Environment:
        return _copy(self.stored, self.archived_at)


class MemoryEnvironmentStore:
    """Implements `EnvironmentStore`."""

    def __init__(self, clock: Clock) -> None:
        self._environments: dict[str, _Kept] = {}
        self._answers = MemoryAnswers(clock)

    async def add(
        self, workspace_id: str, environment: Environment, once: Once[Environment] | None = None
    ) -> Environment:
        def write() -> Environment:
            self._refuse_taken(workspace_id, environment)
            self._environments[environment.id] = _Kept(workspace_id, _copy(environment))
            return environment

        return self._answers.write(write, once, environment.id)

    async def get(self, workspace_id: str, environment_id: str) -> Environment:
        return self._find(workspace_id, environment_id).copy()

    async def revise(
        self,
        workspace_id: str,
        environment_id: str,
        change: Callable[[Environment], Environment],
        once: Once[Environment] | None = None,
    ) -> Environment:
        def write() -> Environment:
            kept = self._find(workspace_id, environment_id)
            stored = kept.copy()
            changed = change(stored)
            if changed is not stored:
                self._refuse_taken(workspace_id, changed)
                kept.stored = _copy(changed)
            return changed

        return self._answers.write(write, once, environment_id)

    async def archive(
        self,
        workspace_id: str,
        environment_id: str,
        at: datetime,
        once: Once[Environment] | None = None,
    ) -> Environment:
        def write() -> Environment:
            kept = self._find(workspace_id, environment_id)
            kept.archived_at = kept.archived_at or at
            return kept.copy()

        return self._answers.write(write, once, environment_id)

    async def delete(
        self, workspace_id: str, environment_id: str, once: Once[str] | None = None
    ) -> None:
        def write() -> str:
            self._find(workspace_id, environment_id)
            del self._environments[environment_id]
            self._answers.withdraw(environment_id)
            return environment_id

        self._answers.write(write, once)

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Environment]:
        own = [one for one in self._environments.values() if one.workspace_id == workspace_id]
        return _newest([one.copy() for one in own], listing)

    def workspace_of(self, environment_id: str) -> str | None:
        """Where an environment is that is not deleted."""
        kept = self._environments.get(environment_id)
        return None if kept is None else kept.workspace_id

    def _find(self, workspace_id: str, environment_id: str) -> _Kept:
        kept = self._environments.get(environment_id)
        if kept is None or kept.workspace_id != workspace_id:
            raise no_environment(environment_id)
        return kept

    def _refuse_taken(self, workspace_id: str, environment: Environment) -> None:
        for kept in self._environments.values():
            same_place = kept.workspace_id == workspace_id and kept.archived_at is None
            same_name = kept.stored.name == environment.name
            if same_place and same_name and kept.stored.id != environment.id:
                raise name_taken(environment.name)


def _copy(message: M, archived_at: datetime | None = None) -> M:
    copy = type(message)()
    copy.CopyFrom(message)
    if archived_at is not None:
        copy.archived_at.FromDatetime(archived_at)
    return copy


def _newest(messages: Iterable[M], listing: Listing) -> Sequence[M]:
    def key(message: M) -> tuple[int, str]:
        return micros(message.created_at), message.id

    def wanted(message: M) -> bool:
        created, after = micros(message.created_at), listing.after
        return (
            (listing.include_archived or not message.HasField("archived_at"))
            and (listing.created_from is None or created >= listing.created_from)
            and (listing.created_to is None or created <= listing.created_to)
            and (after is None or key(message) < (after.order, after.item_id))
        )

    return sorted(filter(wanted, messages), key=key, reverse=True)[: listing.limit]
