"""`drover export` and `drover import` against session services in this process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import stat

import pytest

from chassis.errors import Reason
from chassis.secret import Secret
from cli.target import NoTargetError
from cli.transfer.exporting import export_session
from cli.transfer.importing import import_session
from cli.transfer.service import ServiceTarget, TransferError, resolve
from drover.session.v1 import lease_pb2, session_service_pb2
from tests.doubles.session_events import custom_use, idle, message, running, said
from tests.doubles.session_stack import TOKEN, refusal, running_service


@pytest.fixture
async def here(tmp_path):
    """The installation that a session is of."""
    (tmp_path / "here").mkdir()
    async with running_service(tmp_path / "here") as service:
        yield service


@pytest.fixture
async def there(tmp_path):
    """Another one."""
    (tmp_path / "there").mkdir()
    async with running_service(tmp_path / "there") as service:
        yield service


def target(service):
    return ServiceTarget(service.address, Secret(TOKEN))


async def export(service, session_id, file):
    await asyncio.to_thread(export_session, target(service), session_id, file)
    return file.read_bytes()


async def take_in(service, file):
    return await asyncio.to_thread(import_session, target(service), file)


async def refused(call):
    with pytest.raises(TransferError) as caught:
        await call
    return str(caught.value)


async def worked(service, count=3, size=200):
    """A session at rest, with a message that waits for an answer to be given first."""
    session = await service.create(
        message("hello"), message("later"), metadata={"b": "1", "a": "2"}
    )
    lease = await service.lease(session.id).open()
    await lease.append(running(), take=lease_pb2.TAKE_INPUT_NEXT)
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        await lease.append(*(said(f"text {n} {'x' * size}") for n in numbers))
    await lease.append(custom_use("call"), idle("call"), release=True)
    return session


async def test_an_export_is_the_same_bytes_wherever_it_comes_from(here, there, tmp_path):
    session = await worked(here)
    first = await export(here, session.id, tmp_path / "first.jsonl")
    assert await take_in(there, tmp_path / "first.jsonl") == session.id
    assert await export(there, session.id, tmp_path / "second.jsonl") == first
    lines = first.splitlines(keepends=True)
    values = [json.loads(line) for line in lines]
    assert values[0]["drover_export"] == 1
    assert values[0]["session"]["session_id"] == session.id
    assert [value["event"]["seq"] for value in values[1:-2]] == [str(n) for n in range(1, 8)]
    assert values[-2]["waiting"]["user_message"]
    digest = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    assert values[-1] == {"end": {"events": "7", "waiting": "1", "sha256": digest}}
    assert stat.S_IMODE((tmp_path / "first.jsonl").stat().st_mode) == 0o600


async def test_a_long_session_goes_in_bounded_pieces(here, there, tmp_path):
    session = await worked(here, 6000)
    first = await export(here, session.id, tmp_path / "first.jsonl")
    await take_in(there, tmp_path / "first.jsonl")
    assert await export(there, session.id, tmp_path / "second.jsonl") == first


async def test_a_session_that_runs_is_exported_with_a_warning(here, there, tmp_path, capfd):
    session = await here.create(message("hello"))
    await export(here, session.id, tmp_path / "session.jsonl")
    assert "can be read, but not imported" in capfd.readouterr().err
    text = await refused(take_in(there, tmp_path / "session.jsonl"))
    assert "the session ran when it was exported" in text


async def test_an_export_that_fails_leaves_no_file(here, tmp_path):
    (tmp_path / "old.jsonl").write_text("old")
    text = await refused(export(here, "sesn_0", tmp_path / "old.jsonl"))
    assert text == "session sesn_0 not found"
    assert (tmp_path / "old.jsonl").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"here", "old.jsonl"}


async def test_a_file_that_was_damaged_is_refused_and_imports_nothing(here, there, tmp_path):
    session = await worked(here)
    lines = (await export(here, session.id, tmp_path / "good.jsonl")).splitlines(keepends=True)
    altered = lines[3].replace(b"text 0", b"text 7")
    damaged = {
        "is empty": [],
        "is cut off: its last line is missing": lines[:-1],
        "line 3 is not JSON": [*lines[:2], lines[2][:20]],
        "line 10 tells another digest": [*lines[:3], altered, *lines[4:]],
        "line 9 tells another digest": [*lines[:4], *lines[5:]],
        "line 11 comes behind the end": [*lines, lines[1]],
        "line 1 is not where it belongs": lines[1:],
        "line 2 is not where it belongs": [lines[0], *lines],
        "line 4 is no line of an export": [*lines[:3], b"{}\n", *lines[3:]],
        "line 1 is not JSON": [b"\x1f\x8b\x08 gzipped"[2:], *lines],
    }
    for text, content in damaged.items():
        file = tmp_path / "bad.jsonl"
        file.write_bytes(b"".join(content))
        assert text in await refused(take_in(there, file))
    request = session_service_pb2.GetSessionRequest(session_id=session.id)
    assert (await refusal(there.stub.GetSession(request))).reason is Reason.NOT_FOUND
    await take_in(there, tmp_path / "good.jsonl")


async def test_what_the_service_refuses_is_told_as_it_says_it_amid_an_upload(here, tmp_path):
    session = await worked(here, 400, size=20_000)
    await export(here, session.id, tmp_path / "session.jsonl")
    text = await refused(take_in(here, tmp_path / "session.jsonl"))
    assert text == f"session {session.id} exists already"


async def test_without_the_service_or_its_secret_nothing_is_done(here, tmp_path):
    nowhere = ServiceTarget("127.0.0.1:1", Secret(TOKEN))
    text = await refused(asyncio.to_thread(export_session, nowhere, "sesn_1", tmp_path / "x"))
    assert text.startswith("the session service does not answer at 127.0.0.1:1")
    stranger = ServiceTarget(here.address, Secret("another"))
    text = await refused(asyncio.to_thread(export_session, stranger, "sesn_1", tmp_path / "x"))
    assert "does not take this secret" in text
    file = tmp_path / "session.jsonl"
    session = await worked(here)
    await export(here, session.id, file)
    text = await refused(asyncio.to_thread(import_session, nowhere, file))
    assert text.startswith("the session service does not answer at 127.0.0.1:1")


def test_the_service_is_found_by_the_data_directory_or_named(tmp_path):
    with pytest.raises(NoTargetError, match="no stack runs over"):
        resolve(None, None, tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    (run / "session.address").write_text("127.0.0.1:7\n")
    with pytest.raises(NoTargetError, match="no secret at"):
        resolve(None, None, tmp_path)
    (run / "token").write_text("secret\n")
    assert resolve(None, None, tmp_path).address == "127.0.0.1:7"
    two = "127.0.0.1:1,127.0.0.1:2"
    assert resolve(two, None, tmp_path).address == two
    with pytest.raises(NoTargetError, match=r"there:2 is not on this machine: .*--tls-dir"):
        resolve("there:2", None, tmp_path)
    (tmp_path / "other").write_text("other")
    named = resolve(None, tmp_path / "other", tmp_path)
    assert named.token.open() == "other"
    assert "other" not in repr(named)
