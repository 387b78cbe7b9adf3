"""Hands whose environments' packages come from an index of the test's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from chassis.ids import new_id
from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.domain.limits import MIB, Limits
from services.hands.domain.packages import Packages
from services.hands.domain.recipe import Recipe
from services.hands.packages.builder import Bounds, Terms
from services.hands.packages.shelf import Shelf
from tests.doubles.egress import session
from tests.doubles.egress_proxy import GRANT, World
from tests.doubles.egress_whole import whole
from tests.doubles.hands_stack import HandsStack, Sandboxes
from tests.doubles.origin import origin
from tests.doubles.package_index import VERSION, PackageIndex

HOST = "packages.example"
LIMITS = Limits(memory_bytes=4096 * MIB, processes=256, cpus=2.0)


PIP = Path("/usr/lib/python3/dist-packages/pip")
"""The system's own."""


def lacking() -> str:
    """The first manager that this machine's own system does not have; empty if it has both."""
    if not PIP.is_dir():
        return "no pip of the system: apt-get install python3-pip"
    return "" if Path("/usr/bin/npm").exists() else "no npm: apt-get install npm"


@dataclass
class PackageStage:
    """`hands`, and what they install from."""

    hands: HandsStack
    index: PackageIndex
    world: World

    def add_script(self, name: str, script: str) -> None:
        """A package for npm that runs this when it is installed."""
        document = {"name": name, "version": VERSION, "scripts": {"install": script}}
        self.index.add_tarball(name, {"package.json": json.dumps(document)})

    async def run(self, command: str, *, session_id: str, recipe: Recipe) -> ExecuteResponse:
        """A command's result, in a session of an environment."""
        given = (session_id, new_id("sevt"), 1, "bash", json.dumps({"command": command}))
        return await self.hands.executor.execute(*given, recipe=recipe)


def listing(*, image: str = "", **lists: tuple[str, ...]) -> Recipe:
    """A recipe with these packages."""
    return Recipe(image=image, packages=Packages(tuple(lists.items()), "wrkspc_1"))


@asynccontextmanager
async def package_stage(
    kind: Sandboxes, place: Path, bounds: Bounds | None = None, *, spares: int = 1
) -> AsyncIterator[PackageStage]:
    """Sandboxes may reach the index alone, which has alpha, beta and greeter."""
    world = World(sessions={GRANT: session(allowed=[HOST])})
    index = PackageIndex()
    index.add_wheel("alpha", needs="beta")
    index.add_wheel("beta")
    index.add_tarball("greeter")
    async with (
        whole(world) as outside,
        origin(HOST, authority=world.outside) as server,
    ):
        world.open(HOST, port=server.port)
        server.reply = index.reply
        index.url = f"https://{HOST}:{server.port}"
        indexes = {"pip": f"{index.url}/simple", "npm": f"{index.url}/npm"}
        terms = Terms(Shelf(place / "hands"), indexes, bounds or Bounds(), again_seconds=0.0)
        given = {"limits": LIMITS, "spares": spares, "outside": outside, "packages": terms}
        async with kind.stack(place, **given) as hands:
            yield PackageStage(hands, index, world)
