"""What the registry needs of a store. Every call is scoped to one workspace.

A call with a `once` has its effect once: its repetition is answered as the first was, whatever has
become of things since. It raises CONFLICT for a key that another request had, and NOT_FOUND when
what the answer tells about was deleted.

One contract suite (tests/contract/registry) runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from catalogue.resources.once import Once
from catalogue.resources.paging import Position
from drover.agent.v1.agent_pb2 import Agent
from drover.environment.v1.environment_key_pb2 import EnvironmentKey
from drover.environment.v1.environment_pb2 import Environment
from drover.key.v1.api_key_pb2 import ApiKey
from services.registry.domain.environment_key import Holder


@dataclass(frozen=True, slots=True)
class Listing:
    """Which part of a list is asked for, newest first.

    Times are Unix microseconds, both ends included. `after` is the last item already seen.
    """

    limit: int
    after: Position | None = None
    include_archived: bool = False
    created_from: int | None = None
    created_to: int | None = None


class AgentStore(Protocol):
    """Agents and all their versions. A version, once written, never changes."""

    async def add(self, workspace_id: str, agent: Agent, once: Once[Agent] | None = None) -> Agent:
        """Keeps a new agent at its version 1, and answers it; durable on return."""
        ...

    async def get(self, workspace_id: str, agent_id: str, version: int | None = None) -> Agent:
        """An agent at `version`, its latest by default; `archived_at` is always the agent's own.

        Raises NOT_FOUND.
        """
        ...

    async def revise(
        self,
        workspace_id: str,
        agent_id: str,
        change: Callable[[Agent], Agent],
        once: Once[Agent] | None = None,
    ) -> Agent:
        """Keeps what `change` makes of the latest version, and answers it; durable on return.

        Nothing else changes the agent meanwhile. `change` runs on another thread, is pure, and
        answers its argument to say that there is nothing to keep. What it raises is raised here
        and nothing is kept. Raises NOT_FOUND.
        """
        ...

    async def archive(
        self, workspace_id: str, agent_id: str, at: datetime, once: Once[Agent] | None = None
    ) -> Agent:
        """Archives an agent for good; one that is archived keeps its time. Raises NOT_FOUND."""
        ...

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Agent]:
        """Agents at their latest versions."""
        ...

    async def versions(self, workspace_id: str, agent_id: str, listing: Listing) -> Sequence[Agent]:
        """An agent's versions, newest first. Raises NOT_FOUND."""
        ...


class EnvironmentStore(Protocol):
    """Environments. No two that are not archived share a name within a workspace."""

    async def add(
        self, workspace_id: str, environment: Environment, once: Once[Environment] | None = None
    ) -> Environment:
        """Keeps a new environment, and answers it. Raises ALREADY_EXISTS for a taken name."""
        ...

    async def get(self, workspace_id: str, environment_id: str) -> Environment:
        """Raises ENVIRONMENT_NOT_FOUND."""
        ...

    async def revise(
        self,
        workspace_id: str,
        environment_id: str,
        change: Callable[[Environment], Environment],
        once: Once[Environment] | None = None,
    ) -> Environment:
        """Keeps what `change` makes of the environment, and answers it; durable on return.

        As for agents. Raises ENVIRONMENT_NOT_FOUND, and ALREADY_EXISTS when the new name is taken.
        """
        ...

    async def archive(
        self,
        workspace_id: str,
        environment_id: str,
        at: datetime,
        once: Once[Environment] | None = None,
    ) -> Environment:
        """Archives for good and frees the name; an archived one keeps its time.

        Raises ENVIRONMENT_NOT_FOUND.
        """
        ...

    async def delete(
        self, workspace_id: str, environment_id: str, once: Once[str] | None = None
    ) -> None:
        """Deletes, archived or not; a `once` is given its id. Raises ENVIRONMENT_NOT_FOUND."""
        ...

    async def page(self, workspace_id: str, listing: Listing) -> Sequence[Environment]:
        """Environments, newest first."""
        ...


class EnvironmentKeyStore(Protocol):
    """Keys of self-hosted environments, told by the digests of what their holders show."""

    async def add(
        self,
        workspace_id: str,
        key: EnvironmentKey,
        digest: bytes,
        once: Once[EnvironmentKey] | None = None,
    ) -> EnvironmentKey:
        """Keeps a new key, and answers it; durable on return.

        Raises ENVIRONMENT_NOT_FOUND, and as `refuse_keyless` for an environment without keys.
        """
        ...

    async def revoke(
        self,
        workspace_id: str,
        environment_id: str,
        key_id: str,
        at: datetime,
        once: Once[EnvironmentKey] | None = None,
    ) -> EnvironmentKey:
        """Revokes for good; a revoked one keeps its time.

        Raises ENVIRONMENT_NOT_FOUND, and NOT_FOUND for what is no key of that environment.
        """
        ...

    async def page(
        self, workspace_id: str, environment_id: str, listing: Listing
    ) -> Sequence[EnvironmentKey]:
        """Keys, newest first, those that were revoked only with `include_archived`.

        Raises ENVIRONMENT_NOT_FOUND.
        """
        ...

    async def holder(self, digest: bytes) -> Holder | None:
        """Who holds a key; nobody holds one that was revoked, or whose environment is gone.

        Those of an archived environment go on, for its sessions do.
        """
        ...


class ApiKeyStore(Protocol):
    """API keys, told by the digests of what their holders show.

    Where a `workspace_id` may be `None` it stands for all.
    """

    async def add(self, key: ApiKey, digest: bytes, once: Once[ApiKey] | None = None) -> ApiKey:
        """Keeps a new key of its workspace, and answers it; durable on return."""
        ...

    async def get(self, workspace_id: str | None, key_id: str) -> ApiKey:
        """A key, revoked or not. Raises NOT_FOUND."""
        ...

    async def revoke(
        self,
        workspace_id: str | None,
        key_id: str,
        at: datetime,
        once: Once[ApiKey] | None = None,
    ) -> ApiKey:
        """Revokes for good; a revoked one keeps its time. Raises NOT_FOUND."""
        ...

    async def page(self, workspace_id: str | None, listing: Listing) -> Sequence[ApiKey]:
        """Keys, newest first, those that were revoked only with `include_archived`."""
        ...

    async def find(self, digest: bytes) -> ApiKey | None:
        """The key of a digest, revoked and expired ones too."""
        ...
