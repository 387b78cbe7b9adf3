"""The dialler: of a name's addresses, one that is allowed and answers, within its time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address

import pytest

from services.vault_proxy.domain.refusal import Refusal, Why
from services.vault_proxy.proxy.dial import (
    Address,
    AddressDeniedError,
    AnyAddress,
    JudgingDialler,
    UnreachableError,
    system_resolver,
)


class Names:
    """Where a name leads."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = [ip_address(text) for text in addresses]
        self.asked: list[str] = []

    async def __call__(self, name: str) -> Sequence[Address]:
        self.asked.append(name)
        return self._addresses


class Only:
    """One address may be dialled."""

    def __init__(self, allowed: str) -> None:
        self._allowed = ip_address(allowed)

    def judge(self, address: Address, port: int) -> Refusal | None:
        if address == self._allowed:
            return None
        return Refusal(Why.ADDRESS_NOT_ALLOWED, f"{address} is closed")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_the_one_address_that_is_allowed_is_dialled(port: int) -> None:
    names = Names("10.0.0.1", "127.0.0.1", "10.0.0.2")
    dialler = JudgingDialler(Only("127.0.0.1"), names)
    with await dialler.connect("a.example", port, within=5) as connected:
        assert connected.getpeername() == ("127.0.0.1", port)
        assert connected.getblocking() is False
    assert names.asked == ["a.example"]


async def test_an_address_that_does_not_answer_leaves_time_for_the_next(port: int) -> None:
    dialler = JudgingDialler(AnyAddress(), Names("127.0.0.2", "127.0.0.1"))
    with await dialler.connect("a.example", port, within=5) as connected:
        assert connected.getpeername() == ("127.0.0.1", port)


async def test_none_that_is_allowed_is_a_refusal_with_the_rules_own_words() -> None:
    dialler = JudgingDialler(Only("127.0.0.1"), Names("10.0.0.1", "10.0.0.2"))
    with pytest.raises(AddressDeniedError) as denied:
        await dialler.connect("a.example", 80, within=30)
    assert (denied.value.reason, denied.value.message) == (
        Why.ADDRESS_NOT_ALLOWED,
        "10.0.0.1 is closed",
    )


async def test_an_address_needs_no_resolver() -> None:
    names = Names("127.0.0.1")
    with pytest.raises(AddressDeniedError):
        await JudgingDialler(Only("127.0.0.1"), names).connect("10.0.0.1", 80, within=5)
    assert names.asked == []


async def test_what_is_not_there_is_unreachable() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        closed = bound.getsockname()[1]
        dialler = JudgingDialler(AnyAddress(), Names("127.0.0.1"))
        with pytest.raises(UnreachableError) as refused:
            await dialler.connect("a.example", closed, within=30)
    assert (refused.value.reason, refused.value.late) == (Why.HOST_UNREACHABLE, False)
    with pytest.raises(UnreachableError):
        await JudgingDialler(AnyAddress(), Names()).connect("a.example", 80, within=30)


async def test_a_resolver_that_does_not_answer_is_given_up() -> None:
    async def never(_: str) -> Sequence[Address]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(UnreachableError) as late:
        await JudgingDialler(AnyAddress(), never).connect("a.example", 80, within=0.05)
    assert (late.value.reason, late.value.late) == (Why.HOST_TIMEOUT, True)


async def test_the_systems_resolver_knows_this_machine() -> None:
    async with system_resolver() as resolve:
        assert ip_address("127.0.0.1") in await resolve("localhost")
