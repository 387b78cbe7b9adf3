"""A registry's memory over the wire, and directories of volumes that follow it.

What a sandbox does to its directory, the test does.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from chassis.errors import DroverError, Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.memory.v1.memory_pb2 import Memory, MemoryOperation
from drover.memory.v1.memory_service_pb2 import StoreChanges
from services.hands.archive.bounds import BROUGHT, PARTS
from services.hands.backends.port import Volume
from services.hands.clients.memory import MemoryClient
from services.hands.domain.mounts import MountedStore, Mounts
from services.hands.memory.mirror import Mirror
from services.registry.domain.memory.definition import archived_memory_store
from services.registry.rpc.memory.services import add_memory_services
from services.registry.store.schema import SCHEMA
from tests.doubles.databases import migrated
from tests.doubles.registry_memory import HOME, NOON, MemoryReplica, key
from tests.doubles.standing import PromptExit

T = TypeVar("T")

OWNER = 200_123 if os.geteuid() == 0 else None


class Watched:
    """The client, with what goes wrong on the way. `asked` names what was asked for.

    `before` is awaited before the next request of a name, `lost` are names of requests whose answer
    does not come, `cut` is whether nothing gets through, and `hangs` whether nothing is answered.
    """

    def __init__(self, client: MemoryClient) -> None:
        self._client = client
        self.asked: list[str] = []
        self.before: dict[str, Callable[[], Awaitable[object]]] = {}
        self.lost: set[str] = set()
        self.cut = self.hangs = False

    async def follow(self, stores: Sequence[tuple[str, int]]) -> Sequence[StoreChanges]:
        return await self._pass("follow", lambda: self._client.follow(stores))

    async def create(self, store_id: str, path: str, text: str, session_id: str) -> Memory:
        given = (store_id, path, text, session_id)
        return await self._pass("create", lambda: self._client.create(*given))

    async def update(
        self,
        store_id: str,
        memory_id: str,
        expected: str,
        session_id: str,
        *,
        path: str | None = None,
        text: str | None = None,
    ) -> Memory:
        given = (store_id, memory_id, expected, session_id)
        return await self._pass("update", lambda: self._client.update(*given, path=path, text=text))

    async def delete(self, store_id: str, memory_id: str, expected: str, session_id: str) -> None:
        given = (store_id, memory_id, expected, session_id)
        await self._pass("delete", lambda: self._client.delete(*given))

    async def _pass(self, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        self.asked.append(name)
        if self.hangs:
            raise DroverError(Reason.DEADLINE_EXCEEDED, "the registry did not answer in time")
        if self.cut:
            raise DroverError(Reason.UNAVAILABLE, "the registry is not available")
        if (first := self.before.pop(name, None)) is not None:
            await first()
        answer = await ask()
        if name in self.lost:
            self.lost.discard(name)
            raise DroverError(Reason.UNAVAILABLE, "the registry is not available")
        return answer


class MemoryWorld:
    """A registry's memory, and somebody with a key who changes it, too."""

    def __init__(self, replica: MemoryReplica, client: MemoryClient) -> None:
        self.registry = replica
        self.client = client

    async def has(self, store_id: str) -> dict[str, str]:
        """What a store has, by path."""
        changes = await self.registry.follow(store_id)
        return {memory.path: memory.content for memory in changes.memories}

    async def write(self, store_id: str, path: str, content: str) -> Memory:
        """Somebody else changes a memory, or makes it."""
        for memory in (await self.registry.follow(store_id)).memories:
            if memory.path == path:
                return await self.registry.change(memory, key("other"), content=content)
        return await self.registry.add(store_id, path, content, key("other"))

    async def delete(self, store_id: str, path: str) -> None:
        """Somebody else deletes a memory."""
        for memory in (await self.registry.follow(store_id)).memories:
            if memory.path == path:
                await self.registry.delete(memory, key("other"))

    async def archive(self, store_id: str) -> None:
        """Somebody archives a store."""
        await self.registry.stores.revise(
            HOME, store_id, lambda stored: archived_memory_store(stored, NOON)
        )

    async def discard(self, store_id: str) -> None:
        """Somebody deletes a store."""
        await self.registry.stores.delete(HOME, store_id)

    async def history(self, store_id: str) -> list[tuple[str, str, str]]:
        """What was done to a store, the oldest first: operation, path and by whom."""
        return [
            (
                MemoryOperation.Name(one.operation).removeprefix("MEMORY_OPERATION_").lower(),
                one.path,
                one.created_by.session_actor.session_id or one.created_by.api_actor.api_key_id,
            )
            for one in reversed(await self.registry.history(store_id))
        ]


class Sandbox:
    """One volume with one store, and what follows it."""

    def __init__(
        self,
        world: MemoryWorld,
        root: Path,
        store_id: str,
        *,
        session_id: str = "sesn_1",
        read_only: bool = False,
    ) -> None:
        for part in (*PARTS, *BROUGHT, "memory/notes"):
            (root / part).mkdir(parents=True, exist_ok=True)
            if OWNER is not None:
                os.chown(root / part, OWNER, OWNER)
        self.root = root
        self.memory = root / "memory" / "notes"
        self.store_id = store_id
        self.session_id = session_id
        self.mounts = Mounts(HOME, stores=(MountedStore(store_id, "notes", read_only),))
        self.world = world
        self.restart()

    def restart(self) -> None:
        """A new process over the same volume."""
        self.client = Watched(self.world.client)
        volume = Volume(self.root, OWNER)
        self.mirror = Mirror(self.client, volume, self.session_id, self.mounts)

    def write(self, path: str, content: str | bytes) -> None:
        """The sandbox writes a file."""
        file = self.memory / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def files(self) -> dict[str, str]:
        """What is in the directory."""
        return {
            f"/{path.relative_to(self.memory)}": path.read_text()
            for path in sorted(self.memory.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }

    def kept(self) -> list[str]:
        """What the session finds in its tool outputs."""
        return [path.read_text() for path in sorted((self.root / "tool_outputs").iterdir())]

    async def stored(self) -> list[str]:
        """After a call: what its result says."""
        await self.mirror.store()
        return self.told()

    async def fresh(self) -> list[str]:
        """Before a call: what its result will say."""
        await self.mirror.freshen()
        return self.told()

    def told(self) -> list[str]:
        """What is to be told: errors begin with a mark."""
        return [f"{'! ' if one.is_error else ''}{one.text}" for one in self.mirror.take()]


@asynccontextmanager
async def memory_world(directory: Path) -> AsyncIterator[MemoryWorld]:
    """A registry that serves memory alone, from a database in `directory`."""
    async with PromptExit() as stack:
        url = f"sqlite:///{directory / 'registry.db'}"
        replica = MemoryReplica(await stack.enter_async_context(migrated(url, SCHEMA)))
        token = Secret("token")
        server = GrpcServer("127.0.0.1:0", token, reflection=False)
        add_memory_services(server, replica.stores, replica.memories, replica.versions)
        await server.start()
        stack.push_async_callback(server.stop, 0)
        channel = open_channel(server.address, token)
        stack.push_async_callback(channel.close, None)
        yield MemoryWorld(replica, MemoryClient(channel))
