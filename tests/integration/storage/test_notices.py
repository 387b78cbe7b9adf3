"""What processes on one PostgreSQL tell each other."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from storage.address import Address
from storage.notices import MAX_PAYLOAD, PostgresNotices, open_notices
from tests.doubles.tcp_proxy import TcpProxy

DEADLINE = 30


class Talker:
    """A party that says what the test puts down, and notes what it hears."""

    def __init__(self):
        self.waiting = []
        self.statements = []
        self.notices = []
        self.joins = 0
        self.changed = asyncio.Condition()

    def compose(self):
        said, self.waiting = self.waiting, []
        self.statements.append(said)
        return said

    def heard(self, notice):
        self.notices.append(notice)

    def joined(self):
        self.joins += 1

    async def until(self, condition):
        async with asyncio.timeout(DEADLINE):
            while not condition():  # noqa: ASYNC110  # nothing announces it
                await asyncio.sleep(0.005)


@asynccontextmanager
async def talking(url, channel="drover_test", **options):
    notices, talker = PostgresNotices(Address.parse(url), channel, **options), Talker()
    running = asyncio.create_task(notices.run(talker))
    await talker.until(lambda: talker.joins)

    def say(*what):
        talker.waiting.extend(what)
        notices.ring()

    talker.say = say
    try:
        yield talker
    finally:
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()


@pytest.fixture
def url(postgres):
    return postgres.new_database()


async def test_what_one_says_all_on_the_channel_hear_in_order(url):
    async with talking(url) as one, talking(url) as other, talking(url, "else") as foreign:
        one.say("a", "b")
        one.say("c")
        for talker in (one, other):
            await talker.until(lambda heard=talker.notices: len(heard) == 3)
            assert talker.notices == ["a", "b", "c"]
        assert foreign.notices == []


async def test_what_comes_while_a_statement_is_on_its_way_is_said_in_one(url):
    async with talking(url) as one:
        expected = [str(number) for number in range(500)]
        for number in expected:
            one.say(number)
        await one.until(lambda: len(one.notices) == 500)
        assert one.notices == expected
        assert [said for said in one.statements if said] == [expected]


async def test_a_notice_may_have_as_many_bytes_as_the_server_takes(url):
    async with talking(url) as one:
        one.say("x" * MAX_PAYLOAD)
        await one.until(lambda: one.notices)
        assert len(one.notices[0]) == MAX_PAYLOAD


async def test_a_connection_that_was_ended_is_made_again(url, postgres):
    database = url.rpartition("/")[2]
    async with talking(url) as one, talking(url) as other:
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "  # noqa: S608
            f"WHERE datname = '{database}' AND application_name LIKE '% notices'",
            database="postgres",
        )
        await one.until(lambda: one.joins == other.joins == 2)
        one.say("again")
        await other.until(lambda: other.notices == ["again"])


async def test_a_connection_that_leads_nowhere_is_found_out_and_made_again(url, monkeypatch):
    monkeypatch.setattr("storage.notices._PATIENCE", 0.3)
    with TcpProxy(int(url.rpartition(":")[2].partition("/")[0])) as proxy:
        behind = f"{url.rpartition(':')[0]}:{proxy.port}/{url.rpartition('/')[2]}"
        async with talking(behind, probe_seconds=0.05) as one:
            proxy.stall()
            opened = proxy.traffic.opened
            await one.until(lambda: proxy.traffic.opened > opened)  # it has been given up
            proxy.flow()
            await one.until(lambda: one.joins == 2)
            one.say("again")
            await one.until(lambda: one.notices == ["again"])


async def test_a_server_that_is_away_is_waited_for(url):
    with TcpProxy(int(url.rpartition(":")[2].partition("/")[0])) as proxy:
        behind = f"{url.rpartition(':')[0]}:{proxy.port}/{url.rpartition('/')[2]}"
        async with talking(behind) as one:
            proxy.refuse()
            proxy.cut()
            one.say("lost")
            await one.until(lambda: proxy.traffic.live == 0)
            proxy.admit()
            await one.until(lambda: one.joins == 2)


def test_a_file_of_ones_own_has_nobody_to_tell():
    assert open_notices("sqlite:////tmp/x.db", "drover_test") is None
