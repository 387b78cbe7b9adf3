"""What goes wrong, and when: drawn from the seed, and over once `stop` was called."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.processes import BRAINS

if TYPE_CHECKING:
    from tests.simulation.world import World

_PAIRS = (
    ("session", "brain-1"),
    ("session", "brain-2"),
    ("hands", "brain-1"),
    ("hands", "brain-2"),
    ("hands", "session"),
    ("client", "session"),
)


class Faults:
    """Breaks things until it is told to stop. A quiet world has none of this at all."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._stopped = False
        self._pause = 0.0 if self._rng.random() < 0.1 else 0.3 + 6 * self._rng.random()
        if self._pause:
            self._make_others_fickle()

    def _make_others_fickle(self) -> None:
        """What fails by itself: the model, the sandboxes, the network's pace."""
        world, draw = self._world, self._rng.random
        temper, fate = world.model.temper, world.fate
        temper.fails, temper.cuts = 0.4 * draw() ** 3, 0.2 * draw() ** 3
        temper.hangs, temper.odd = 0.1 * draw() ** 2, 0.2 * draw() ** 2
        temper.tools = 0.2 + 0.7 * draw()
        fate.death, fate.refusal, fate.stubborn = 0.3 * draw() ** 3, 0.3 * draw() ** 4, 0.2 * draw()
        world.network.slow = 0.3 * draw() ** 2

    async def run(self) -> None:
        while self._pause and not self._stopped:
            await asyncio.sleep(self._pause * self._rng.random())
            if not self._stopped:
                self._break_something()

    def stop(self) -> None:
        """Nothing breaks any more, and all that is broken is mended."""
        self._stopped = True
        world = self._world
        world.model.temper.calm()
        world.fate.calm()
        if world.server is not None:
            world.server.calm = True
        world.network.slow = 0.0
        world.network.heal()
        world.disk.down_until = 0.0
        world.disk.may_lie = False
        for name in (*BRAINS, "session", "hands"):
            life = world.life(name)
            life.steps_left = -1
            world.loop.resume(life)
            if life.stopping and not life.dead:
                world.kill(life)
            if life.dead:
                world.start(name)

    def _break_something(self) -> None:
        world, rng = self._world, self._rng
        draw = rng.random()
        brain = BRAINS[int(rng.random() * 2)]
        if draw < 0.22:
            self._doom(brain)
        elif draw < 0.25:
            self._stop((*BRAINS, "session", "hands")[int(rng.random() * 4)])
        elif draw < 0.32:
            self._doom("session")
        elif draw < 0.44:
            self._doom("hands")
        elif draw < 0.58:
            self._suspend(brain, 16 * rng.random())
        elif draw < 0.62:
            self._suspend("session" if rng.random() < 0.5 else "hands", 12 * rng.random() ** 2)
        elif draw < 0.80:
            world.network.cut(*_PAIRS[int(rng.random() * len(_PAIRS))])
        elif draw < 0.92:
            pair = _PAIRS[int(rng.random() * len(_PAIRS))]
            world.network.stall(*pair, 14 * rng.random() ** 2)
        elif draw < 0.96:
            world.disk.down_until = world.loop.time() + 4 * rng.random()
            world.trace.note("disk", "down", round(world.disk.down_until, 3))
        else:
            world.kill_a_sandbox()

    def _stop(self, name: str) -> None:
        life = self._world.life(name)
        if life.runs and not life.stopping:
            self._world.stop(life)

    def _doom(self, name: str) -> None:
        """It dies so many callbacks from now, wherever it is then."""
        life = self._world.life(name)
        if life.runs:
            life.steps_left = 1 + int(120 * self._rng.random() ** 2)

    def _suspend(self, name: str, seconds: float) -> None:
        life = self._world.life(name)
        if life.runs:
            self._world.suspend(life, seconds)
