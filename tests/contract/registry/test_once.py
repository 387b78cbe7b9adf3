"""Every store of the registry answers a repeated request as it did the first one."""

from __future__ import annotations

from typing import Any

import pytest

from catalogue.resources.once import Once
from chassis.errors import DroverError, Reason
from services.registry.domain.ports import AgentStore, EnvironmentStore
from tests.contract.registry.test_agent_store import agent
from tests.contract.registry.test_environment_store import HOME, NOON, environment, rename
from tests.doubles.request_keys import named


def once(kind: type[Any], name: str = "k", body: str = "body") -> Once[Any]:
    return Once(named(name, body), lambda result: result.SerializeToString(), kind.FromString)


async def test_an_agent_is_added_once(agents: AgentStore) -> None:
    kind = type(agent(1))
    first, again = once(kind), once(kind)
    assert await agents.add(HOME, agent(1), first) == agent(1)
    assert await agents.add(HOME, agent(2), again) == agent(1)
    assert (first.replayed, again.replayed) == (False, True)
    with pytest.raises(DroverError) as missing:
        await agents.get(HOME, "agent_2")
    assert missing.value.reason is Reason.NOT_FOUND


async def test_a_repeated_archiving_shows_the_agent_as_it_was_then(agents: AgentStore) -> None:
    await agents.add(HOME, agent(1))
    first = await agents.archive(HOME, "agent_1", NOON, once(type(agent(1))))
    assert await agents.archive(HOME, "agent_1", NOON, once(type(agent(1)))) == first


async def test_an_environment_is_revised_once(environments: EnvironmentStore) -> None:
    kind = type(environment(1))
    await environments.add(HOME, environment(1, "data"))
    await environments.revise(HOME, "env_1", rename("web"), once(kind))
    await environments.revise(HOME, "env_1", rename("later"))
    again = await environments.revise(HOME, "env_1", rename("web"), once(kind))
    assert again.name == "web"
    assert (await environments.get(HOME, "env_1")).name == "later"


async def test_an_environment_is_deleted_once_and_its_answers_with_it(
    environments: EnvironmentStore,
) -> None:
    kind = type(environment(1))
    await environments.add(HOME, environment(1), once(kind, "add"))
    for _ in range(2):
        deletion: Once[str] = Once(named("delete"), str.encode, bytes.decode)
        await environments.delete(HOME, "env_1", deletion)
    assert deletion.replayed
    with pytest.raises(DroverError, match="was deleted since") as gone:
        await environments.add(HOME, environment(1), once(kind, "add"))
    assert gone.value.reason is Reason.NOT_FOUND
