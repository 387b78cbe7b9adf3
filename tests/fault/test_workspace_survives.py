"""A session's workspace outlives its sandbox, its hands process, its machine and its backend."""

from __future__ import annotations

import asyncio
import base64
import io
import math
import os
import signal
import sqlite3
import stat
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from drover.hands.v1 import hands_service_pb2 as pb
from services.hands.backends.docker.container import HAND
from tests.doubles import odd_tree
from tests.doubles.docker_engine import Engine, lacking
from tests.doubles.s3 import S3, running_s3
from tests.integration.hands.conftest import TOKEN, HandsProcess, call

STORE = "bucket/drover/"
SLOW = 60.0  # s
RUN_SCRIPT = base64.b64encode(odd_tree.SCRIPT).decode()
DIGESTS = (
    "cd /workspace; chmod u+rwx shut; chmod u+r locked; "
    "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; "
    "chmod 0 shut locked"
)


@pytest.fixture
def s3() -> Iterator[S3]:
    with running_s3() as server:
        yield server


class Machine:
    """A machine with a hands process, whose database and store are the others' too."""

    def __init__(self, directory: Path, name: str, s3: S3, **environment: str) -> None:
        self.root = directory / name
        self.volume = self.root / "hands" / "workspaces" / "sesn_1"
        (self.root / "run").mkdir(parents=True)
        (self.root / "run" / "token").write_text(TOKEN)
        self.database = directory / "hands.db"
        self.environment = {
            "DROVER_HANDS_DATABASE_URL": f"sqlite:///{self.database}",
            "DROVER_HANDS_CHECKPOINTS": "s3://bucket/drover",
            "DROVER_HANDS_CHECKPOINT_IDLE_SECONDS": "0.2",
            "DROVER_HANDS_SPARE_SANDBOXES": "0",
            **s3.environment,
            **environment,
        }

    @asynccontextmanager
    async def process(self) -> AsyncIterator[HandsProcess]:
        """Killed at the end of the block, unless it has ended."""
        process = HandsProcess(self.root, **self.environment)
        await process.start()
        try:
            yield process
        finally:
            await process.end(signal.SIGKILL)

    def look(self) -> dict[bytes, tuple[object, ...]]:
        return odd_tree.look(self.volume)

    def counts(self) -> list[str]:
        """The objects that the database counts on. It knows of others for minutes: of those that
        were being stored when a process died, which may come to be after their deletion.
        """
        with closing(sqlite3.connect(self.database)) as database:
            rows = database.execute("SELECT name FROM checkpoints WHERE state = 1").fetchall()
        return [f"{STORE}{name}" for (name,) in rows]


async def run(process: HandsProcess, call_id: str, command: str) -> str:
    result: pb.ExecuteResponse = await process.client.Execute(call(call_id, command=command))
    assert not result.is_error, result
    return "".join(block.text.text for block in result.content)


async def stored(
    s3: S3, machine: Machine, text: str, made: dict[bytes, tuple[object, ...]] | None = None
) -> None:
    """Once the database counts on one checkpoint, which the store has, alone, and in which the last
    file is `text`: a process that dies before has stored nothing yet.

    With `made` it must also be of when the workspace looked so: one that was begun before a call
    may have seen half of what the call did, and another is on its way. That is another process's
    doing, and has no event.
    """
    async with asyncio.timeout(SLOW):
        while True:
            found = dict(s3.objects)
            if len(found) == 1 and machine.counts() == [*found]:
                (data,) = found.values()
                if _last(data) == text and (made is None or _looks(data) <= _looked(made)):
                    return
            await asyncio.sleep(0.02)


def verb(request: str) -> str:
    return request.partition(" ")[0]


def _looks(checkpoint: bytes) -> set[tuple[bytes, object, object]]:
    with tarfile.open(fileobj=io.BytesIO(checkpoint)) as read:
        return {
            (os.fsencode(one.name), one.mode, math.floor(one.mtime))
            for one in read
            if one.name.split("/")[0] == "workspace" and not (one.issym() or one.islnk())
        }


def _looked(made: dict[bytes, tuple[object, ...]]) -> set[tuple[bytes, object, object]]:
    return {
        (name, facts[1], int(str(facts[2])) // 10**9)
        for name, facts in made.items()
        if name.split(b"/")[0] == b"workspace" and facts[0] != stat.S_IFLNK
    }


def _last(checkpoint: bytes) -> str:
    with tarfile.open(fileobj=io.BytesIO(checkpoint)) as read:
        try:
            file = read.extractfile("workspace/last")
        except KeyError:
            return ""
        assert file is not None
        return file.read().decode()


async def end_sandbox(process: HandsProcess, engine: Engine | None) -> None:
    """As a machine that is out of memory does, or a person who tidies up. There is another then."""
    request = pb.ProvisionRequest(session_id="sesn_1", generation=1)
    hand: pb.ProvisionResponse = await process.client.Provision(request)
    if engine is None:
        for thread in Path(f"/proc/{process.process.pid}/task").iterdir():
            for pid in map(int, (thread / "children").read_text().split()):
                os.kill(pid, signal.SIGKILL)
    else:
        label = f"label={HAND}={hand.hand_id}"
        engine.docker("rm", "--force", *engine.docker("ps", "--quiet", "--filter", label).split())
    async with asyncio.timeout(SLOW):
        while (await process.client.Provision(request)).hand_id == hand.hand_id:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="looks into what a session has locked")
async def test_workspace_survives_its_sandbox_its_process_its_machine_and_its_backend(
    request: pytest.FixtureRequest, tmp_path: Path, s3: S3
) -> None:
    engine: Engine | None = None
    kinds, environment = ("local", "local", "local"), {}
    if not lacking():
        engine = request.getfixturevalue("docker_engine")
        kinds, environment = ("local", "docker", "local"), {"DOCKER_HOST": engine.host}
    first, second, third = (
        Machine(tmp_path, f"machine{number}", s3, DROVER_SANDBOX=kind, **environment)
        for number, kind in enumerate(kinds)
    )
    engines = [engine if kind == "docker" else None for kind in kinds]

    async with first.process() as process:
        await run(process, "c1", f'python3 -c "$(echo {RUN_SCRIPT} | base64 -d)"')
        await run(process, "c2", "cp plain /mnt/session/outputs/report; ln -s /etc ~/.link")
        digests, made = await run(process, "c3", DIGESTS), first.look()
        assert len(made) > 25
        await end_sandbox(process, engines[0])
        assert (await run(process, "c4", DIGESTS)).startswith(digests)
        assert first.look() == made
    # Killed: the next process finds the volume where it was.
    async with first.process() as process:
        assert (await run(process, "c5", DIGESTS)).startswith(digests)
        assert first.look() == made
        await run(process, "c6", "echo -n first > last")
        made = first.look()
        await stored(s3, first, "first", made)
    # Its machine is gone: what is left of it is in the store.
    async with second.process() as process:
        digests = await run(process, "c7", DIGESTS)
        assert second.look() == made
        await end_sandbox(process, engines[1])
        assert (await run(process, "c8", DIGESTS)).startswith(digests.partition("\n[")[0])
        assert second.look() == made
        await run(process, "c9", "echo -n second > last; rm plain; mkdir -p new/place")
        made = second.look()
        await stored(s3, second, "second", made)
    async with third.process() as process:
        await run(process, "c10", "true")
        assert third.look() == made
    # The first machine comes back with what it had, which is old.
    async with first.process() as process:
        await run(process, "c11", "true")
        assert first.look() == made


@pytest.mark.parametrize("held", ["PUT", "DELETE"])
async def test_process_killed_while_it_stores_leaves_one_checkpoint_in_the_end(
    held: str, tmp_path: Path, s3: S3
) -> None:
    machine = Machine(tmp_path, "machine", s3)
    async with machine.process() as process:
        await run(process, "c1", "echo -n first > last")
        await stored(s3, machine, "first")
        s3.held = held
        await run(process, "c2", "echo -n second > last")
        async with asyncio.timeout(SLOW):  # the second PUT, and the first DELETE
            while [*map(verb, s3.requests)].count(held) < (2 if held == "PUT" else 1):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    s3.held = ""
    s3.gate.set()  # what was on its way arrives after all
    async with asyncio.timeout(SLOW):
        while len(s3.objects) != (2 if held == "PUT" else 1):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    async with machine.process():
        await stored(s3, machine, "second")
    assert not s3.uploads
