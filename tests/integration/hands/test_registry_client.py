"""What the hands read from a registry and write to it, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from chassis.errors import DroverError, Reason
from services.hands.clients.registry import RegistryClient
from services.hands.outputs.scan import Changed
from tests.doubles.hands_registry import HOME, RegistryDouble, registry_double, skill_archive

pytestmark = pytest.mark.asyncio(loop_scope="module")
DATA = bytes(range(256)) * 4000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def registry() -> AsyncIterator[tuple[RegistryDouble, RegistryClient]]:
    async with registry_double() as both:
        yield both


@pytest.fixture
def double(registry: tuple[RegistryDouble, RegistryClient]) -> RegistryDouble:
    double = registry[0]
    double.away = double.broken = False
    double.refuse = double.gate = None
    double.published.clear()
    double.reading.clear()
    return double


@pytest.fixture
def client(registry: tuple[RegistryDouble, RegistryClient]) -> RegistryClient:
    return registry[1]


async def pieces(*data: bytes, fail: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece
    if fail is not None:
        raise fail


async def test_bytes_come_whole_with_what_is_known_of_them(
    double: RegistryDouble, client: RegistryClient
) -> None:
    double.file("file_1", DATA)
    double.skill("skill_1", "2", skill_archive())
    async with client.file(HOME, "file_1") as (about, read):
        assert about.size_bytes == len(DATA)
        assert b"".join([piece async for piece in read]) == DATA
    async with client.skill(HOME, "skill_1", "2") as (version, read):
        assert version.id == "2"
        assert b"".join([piece async for piece in read]) == skill_archive()


async def test_lookups_are_the_named_workspaces(
    double: RegistryDouble, client: RegistryClient
) -> None:
    double.file("file_1", DATA)
    with pytest.raises(DroverError) as refused:
        async with client.file("wrkspc_other", "file_1"):
            pytest.fail("it is another's")
    assert refused.value.reason is Reason.NOT_FOUND


async def test_what_breaks_off_is_no_end(double: RegistryDouble, client: RegistryClient) -> None:
    double.file("file_1", DATA)
    double.broken = True
    with pytest.raises(DroverError) as refused:
        async with client.file(HOME, "file_1") as (_, read):
            assert not [piece async for piece in read]
    assert refused.value.reason is Reason.UNAVAILABLE


async def test_a_reader_that_gives_up_ends_the_stream(
    double: RegistryDouble, client: RegistryClient
) -> None:
    double.file("file_1", DATA)
    double.gate = asyncio.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), client.file(HOME, "file_1") as (_, read):
            assert not [piece async for piece in read]


async def test_a_file_is_published_when_it_is_complete(
    double: RegistryDouble, client: RegistryClient
) -> None:
    await client.publish("wrkspc_1", "sesn_1", "a/b", 6, pieces(b"one", b"two"))
    await client.publish("wrkspc_1", "sesn_1", "empty", 0, pieces())
    assert double.published == {("sesn_1", "a/b"): b"onetwo", ("sesn_1", "empty"): b""}
    assert "wrkspc_1" in double.workspaces


@pytest.mark.parametrize("failure", [Changed(), OSError(5, "Input/output error")])
async def test_nothing_is_published_of_what_cannot_be_read_to_its_end(
    double: RegistryDouble, client: RegistryClient, failure: Exception
) -> None:
    with pytest.raises(type(failure)):
        await client.publish(HOME, "sesn_1", "a", 9, pieces(DATA, DATA, fail=failure))
    assert not double.published


@pytest.mark.parametrize("reason", [Reason.REQUEST_TOO_LARGE, Reason.INVALID_ARGUMENT])
async def test_a_refusal_is_told_as_it_is(
    double: RegistryDouble, client: RegistryClient, reason: Reason
) -> None:
    double.refuse = DroverError(reason, "it is not taken", error_code="storage_quota_exceeded")
    with pytest.raises(DroverError, match="it is not taken") as refused:
        await client.publish(HOME, "sesn_1", "a", 1, pieces(b"x"))
    assert refused.value.reason is reason
    assert refused.value.error_code == "storage_quota_exceeded"


async def test_a_registry_that_is_away_is_told_at_once(
    double: RegistryDouble, client: RegistryClient
) -> None:
    double.away = True
    for _ in range(10):  # it says so while more is being sent
        begun = pieces(*([DATA] * 20))
        with pytest.raises(DroverError) as refused:
            await client.publish(HOME, "sesn_1", "a", 20 * len(DATA), begun)
        assert refused.value.reason is Reason.UNAVAILABLE


async def test_an_upload_that_is_cancelled_leaves_nothing(
    double: RegistryDouble, client: RegistryClient
) -> None:
    never, sent = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield DATA
        sent.set()
        await never.wait()

    upload = asyncio.create_task(client.publish(HOME, "sesn_1", "a", 9, slowly()))
    await sent.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    await client.publish(HOME, "sesn_1", "b", 1, pieces(b"b"))
    assert double.published == {("sesn_1", "b"): b"b"}
