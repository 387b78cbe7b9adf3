"""Brains that are found by a name: each is one of its own, and they come and go."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import grpc.aio
import pytest

from chassis.errors import CannotStartError, DroverError, Reason
from services.session.clients.brains import Brains
from services.session.dispatch import Dispatcher
from services.session.main import SessionSettings, build
from tests.doubles.session_stack import until
from tests.doubles.session_world import World

NAME = "dns:///brain:7000"


class Channel:
    """A channel whose calls go on until they are let go."""

    def __init__(self, address):
        self.address = address
        self.closed = False
        self.finish = asyncio.Event()

    def unary_unary(self, *_args, **_kwargs):
        return lambda *_args, **_kwargs: self.finish.wait()

    async def close(self, _grace):
        self.closed = True


def channel_to_nobody(_address):
    """gRPC's own, which is never dialled: what a closed one does is its own affair."""
    return grpc.aio.insecure_channel("127.0.0.1:1")


class Names:
    """What a name leads to at the moment."""

    def __init__(self, *addresses):
        self.addresses = list(addresses)
        self.channels = {}
        self.looks = 0

    async def look_up(self, host, port):
        self.looks += 1
        if self.addresses == ["?"]:
            raise OSError("no name server")
        return [f"{address}:{port}" for address in self.addresses]

    def open(self, address):
        assert address not in self.channels or self.channels[address].closed
        self.channels[address] = Channel(address)
        return self.channels[address]

    def brains(self, *addresses, **options):
        return Brains(addresses, self.open, look_up=self.look_up, **options)


def shown(brains):
    return [brain.address for brain in brains]


async def test_every_replica_behind_a_name_is_a_brain_of_its_own():
    names = Names("10.0.0.1", "10.0.0.2")
    async with names.brains("10.9.9.9:7000", NAME) as brains:
        assert shown(brains) == ["10.9.9.9:7000"]
        await brains.look()
        assert shown(brains) == ["10.9.9.9:7000", "10.0.0.1:7000", "10.0.0.2:7000"]
    assert all(channel.closed for channel in names.channels.values())


async def test_brains_that_are_started_later_are_found_and_those_that_went_are_left():
    names = Names("10.0.0.1", "10.0.0.2")
    brains = names.brains(NAME, look_seconds=0.001)
    looking = asyncio.create_task(brains.run())
    await until(lambda: len(brains) == 2)
    kept = brains[1]
    names.addresses = ["10.0.0.2", "10.0.0.3"]
    await until(lambda: shown(brains) == ["10.0.0.2:7000", "10.0.0.3:7000"])
    await until(lambda: names.channels["10.0.0.1:7000"].closed)
    assert brains[0] is kept
    looking.cancel()


async def test_while_names_cannot_be_looked_up_the_brains_are_those_of_before():
    names = Names("10.0.0.1")
    brains = names.brains(NAME)
    await brains.look()
    for gone in (["?"], []):
        names.addresses = gone
        await brains.look()
        assert shown(brains) == ["10.0.0.1:7000"]


async def test_a_brain_that_leaves_its_name_finishes_what_it_was_woken_for():
    names = Names("10.0.0.1")
    brains = names.brains(NAME)
    await brains.look()
    work = asyncio.create_task(brains[0].wake(World().ref))
    await until(lambda: names.channels["10.0.0.1:7000"] and brains[0].is_busy)
    names.addresses = ["10.0.0.2"]
    await brains.look()
    assert shown(brains) == ["10.0.0.2:7000"]
    assert not names.channels["10.0.0.1:7000"].closed
    names.channels["10.0.0.1:7000"].finish.set()
    await work
    await brains.look()
    assert names.channels["10.0.0.1:7000"].closed


async def test_a_brain_that_went_while_others_were_asked_is_passed_over():
    names = Names("10.0.0.1", "10.0.0.2")
    brains = Brains([NAME], channel_to_nobody, look_up=names.look_up)
    await brains.look()
    order = [*brains]  # as for a session whose first brain works for minutes
    names.addresses = ["10.0.0.1"]
    await brains.look()
    with pytest.raises(DroverError) as refusal:
        await order[1].wake(World().ref)
    assert refusal.value.reason is Reason.UNAVAILABLE
    await order[0].close()


async def test_addresses_alone_are_never_looked_up():
    names = Names()
    brains = names.brains("10.0.0.1:7000", "10.0.0.2:7000")
    await brains.run()
    assert names.looks == 0
    assert len(brains) == 2


async def test_a_name_without_a_port_is_refused():
    with pytest.raises(ValueError, match="host:port"):
        Names().brains("dns:///brain")


async def test_a_session_whose_brain_is_no_more_is_another_brains():
    names = Names("10.0.0.1", "10.0.0.2")
    brains = names.brains(NAME)
    await brains.look()
    dispatcher = Dispatcher(brains, World().store)
    dispatcher._last["sesn_1"] = brains[1]
    assert shown(dispatcher._order("sesn_1"))[0] == "10.0.0.2:7000"
    names.addresses = ["10.0.0.1"]
    await brains.look()
    assert shown(dispatcher._order("sesn_1")) == ["10.0.0.1:7000"]


async def test_a_name_that_leads_elsewhere_is_nothing_to_start_with_in_clear(tmp_path):
    (tmp_path / "token").write_text("secret")
    settings = SessionSettings(
        data_dir=tmp_path, token_file=tmp_path / "token", brain_addresses=("127.0.0.1:1", NAME)
    )
    async with AsyncExitStack() as stack:
        with pytest.raises(CannotStartError, match="DROVER_BRAIN_ADDRESSES is dns:///brain:7000"):
            await build(settings, stack)
