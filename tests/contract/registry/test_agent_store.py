from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from catalogue.resources.paging import Position
from catalogue.resources.stamps import micros
from chassis.errors import DroverError, Reason
from drover.agent.v1.agent_pb2 import Agent
from drover.agent.v1.model_pb2 import ModelConfig
from services.registry.domain.ports import Listing

if TYPE_CHECKING:
    from services.registry.domain.ports import AgentStore

HOME, ELSEWHERE = "wrkspc_home", "wrkspc_elsewhere"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
ALL = Listing(limit=100, include_archived=True)


def agent(number: int, *, at: datetime | None = None) -> Agent:
    made = Agent(id=f"agent_{number}", version=1, name="Ada", model=ModelConfig(id="m"))
    made.created_at.FromDatetime(at or NOON + timedelta(seconds=number))
    return made


def renamed(stored: Agent) -> Agent:
    changed = Agent()
    changed.CopyFrom(stored)
    changed.version += 1
    changed.name += "+"
    return changed


def ids(agents: object) -> list[str]:
    return [one.id for one in agents]  # type: ignore[attr-defined]


async def test_what_was_added_is_read_back_whole(agents: AgentStore) -> None:
    await agents.add(HOME, agent(1))
    assert await agents.get(HOME, "agent_1") == agent(1)


async def test_every_version_stays_as_it_was(agents: AgentStore) -> None:
    await agents.add(HOME, agent(1))
    for _ in range(2):
        await agents.revise(HOME, "agent_1", renamed)
    names = [(await agents.get(HOME, "agent_1", version)).name for version in (1, 2, 3)]
    assert names == ["Ada", "Ada+", "Ada++"]
    assert (await agents.get(HOME, "agent_1")).version == 3


async def test_a_change_that_answers_its_argument_makes_no_version(agents: AgentStore) -> None:
    await agents.add(HOME, agent(1))
    await agents.revise(HOME, "agent_1", lambda stored: stored)
    assert len(await agents.versions(HOME, "agent_1", ALL)) == 1


async def test_a_change_that_fails_keeps_nothing(agents: AgentStore) -> None:
    await agents.add(HOME, agent(1))

    def fail(stored: Agent) -> Agent:
        stored.name = "half done"
        raise DroverError(Reason.INVALID_ARGUMENT, "no")

    with pytest.raises(DroverError, match="no"):
        await agents.revise(HOME, "agent_1", fail)
    assert await agents.get(HOME, "agent_1") == agent(1)


@pytest.mark.parametrize("version", [2, 2_000_000_000])
async def test_an_unknown_version_is_not_found(agents: AgentStore, version: int) -> None:
    await agents.add(HOME, agent(1))
    with pytest.raises(DroverError, match=f"version {version}") as refusal:
        await agents.get(HOME, "agent_1", version)
    assert refusal.value.reason is Reason.NOT_FOUND


async def test_another_workspace_sees_and_changes_nothing(agents: AgentStore) -> None:
    await agents.add(HOME, agent(1))
    assert await agents.page(ELSEWHERE, ALL) == []
    for call in (
        agents.get(ELSEWHERE, "agent_1"),
        agents.get(ELSEWHERE, "agent_1", 1),
        agents.revise(ELSEWHERE, "agent_1", renamed),
        agents.archive(ELSEWHERE, "agent_1", NOON),
        agents.versions(ELSEWHERE, "agent_1", ALL),
    ):
        with pytest.raises(DroverError) as refusal:
            await call
        assert refusal.value.reason is Reason.NOT_FOUND
    assert await agents.get(HOME, "agent_1") == agent(1)


async def test_archiving_again_keeps_the_first_time(agents: AgentStore) -> None:
    await agents.add(HOME, agent(1))
    first = await agents.archive(HOME, "agent_1", NOON)
    again = await agents.archive(HOME, "agent_1", NOON + timedelta(hours=1))
    assert first == again
    assert again.archived_at.ToDatetime(UTC) == NOON


async def test_archived_agents_are_marked_at_every_version(agents: AgentStore) -> None:
    await agents.add(HOME, agent(1))
    await agents.revise(HOME, "agent_1", renamed)
    await agents.archive(HOME, "agent_1", NOON)
    listed = await agents.versions(HOME, "agent_1", ALL)
    assert [one.archived_at.ToDatetime(UTC) for one in listed] == [NOON, NOON]
    assert (await agents.get(HOME, "agent_1", 1)).HasField("archived_at")


async def test_pages_are_newest_first_and_hide_the_archived(agents: AgentStore) -> None:
    for number in (2, 1, 3):
        await agents.add(HOME, agent(number))
    await agents.archive(HOME, "agent_3", NOON)
    assert ids(await agents.page(HOME, Listing(limit=10))) == ["agent_2", "agent_1"]
    assert ids(await agents.page(HOME, ALL)) == ["agent_3", "agent_2", "agent_1"]


async def test_pages_go_on_after_a_position_even_among_equal_times(agents: AgentStore) -> None:
    for number in range(1, 6):
        await agents.add(HOME, agent(number, at=NOON))
    after = Position(micros(NOON), "agent_4")
    page = await agents.page(HOME, Listing(limit=2, after=after))
    assert ids(page) == ["agent_3", "agent_2"]


async def test_time_bounds_include_both_ends(agents: AgentStore) -> None:
    for number in range(1, 6):
        await agents.add(HOME, agent(number))
    low, high = (micros(NOON + timedelta(seconds=second)) for second in (2, 4))
    page = await agents.page(HOME, Listing(limit=10, created_from=low, created_to=high))
    assert ids(page) == ["agent_4", "agent_3", "agent_2"]


async def test_a_page_shows_agents_at_their_latest_version(agents: AgentStore) -> None:
    await agents.add(HOME, agent(1))
    await agents.revise(HOME, "agent_1", renamed)
    (listed,) = await agents.page(HOME, ALL)
    assert (listed.version, listed.name) == (2, "Ada+")


async def test_versions_are_newest_first_and_paged(agents: AgentStore) -> None:
    await agents.add(HOME, agent(1))
    for _ in range(4):
        await agents.revise(HOME, "agent_1", renamed)
    page = await agents.versions(HOME, "agent_1", Listing(limit=2, after=Position(5)))
    assert [one.version for one in page] == [4, 3]
    last = await agents.versions(HOME, "agent_1", Listing(limit=2, after=Position(1)))
    assert last == []


async def test_changes_from_all_processes_make_one_line_of_versions(
    all_agents: list[AgentStore],
) -> None:
    await all_agents[0].add(HOME, agent(1))
    changes = [store.revise(HOME, "agent_1", renamed) for store in all_agents for _ in range(15)]
    revised = await asyncio.gather(*changes)
    assert sorted(one.version for one in revised) == list(range(2, len(changes) + 2))
    listed = await all_agents[-1].versions(HOME, "agent_1", ALL)
    assert [len(one.name) - len("Ada") for one in listed] == list(range(len(changes), -1, -1))


async def test_all_who_archive_at_once_see_one_time(all_agents: list[AgentStore]) -> None:
    await all_agents[0].add(HOME, agent(1))
    archived = await asyncio.gather(
        *[
            store.archive(HOME, "agent_1", NOON + timedelta(seconds=number))
            for number in range(8)
            for store in all_agents
        ]
    )
    assert len({one.archived_at.ToDatetime(UTC) for one in archived}) == 1
