"""One run: a world is made from a seed, lives, comes to rest, and is judged."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import traceback
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest import mock

import structlog

from services.brain.loop import checkpoints as leaving
from services.session.domain import checkpoints as sending
from tests.simulation import invariants
from tests.simulation.client import Client
from tests.simulation.faults import Faults
from tests.simulation.loop import DeadlockError
from tests.simulation.world import NONE, Mutations, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.trace import Lines

_TROUBLE = 90.0
"""Virtual seconds at most in which things go wrong."""
_PATIENCE = 900.0
"""Virtual seconds in which everything must come to rest once nothing goes wrong any more."""
_LOOK = 0.5


@dataclass
class Outcome:
    """What came of a run. It went well if `faults` is empty."""

    seed: int
    faults: list[str]
    digest: str
    seconds: float
    steps: int
    events: int
    # How often what has come about: events by their type, and what else the trace tells of.
    counts: Counter[str] = field(default_factory=Counter)
    trace: Lines | None = None

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.events} events in {self.seconds:.1f} s, {self.digest}"
        return "\n  ".join([head, *self.faults[:12]])


def simulate(seed: int, *, mutations: Mutations = NONE) -> Outcome:
    """Runs the world of `seed` to its end and judges it. The same seed gives the same digest."""
    with _alone(seed):
        outcome = _run(seed, mutations)
        with _unheard():
            gc.collect(1)
    return outcome


def _run(seed: int, mutations: Mutations) -> Outcome:
    world = World(seed, mutations)
    watcher = invariants.Watcher(world)
    clients = [Client(world, at) for at in range(1 + int(world.rng.random() * 3))]
    faults: list[str] = []
    main = world.loop.spawn(world.client_life, _live(world, clients, faults))
    try:
        world.loop.run_until_complete(main)
    except DeadlockError as error:
        faults.append(str(error))
    except Exception as error:  # noqa: BLE001  # a run that breaks is one that failed
        faults.append("".join(traceback.format_exception(error)[-12:]))
    outcome = Outcome(
        seed,
        [*watcher.faults, *faults, *world.model.faults, *world.all_failures()],
        world.trace.digest(),
        world.loop.time(),
        world.loop.steps,
        sum(len(kept.log) for kept in world.disk.tables.sessions.values()),
        world.trace.counts() + world.counts,
        world.trace.lines(),
    )
    world.network.closed = True
    with _unheard():
        world.loop.bury(world.all_lives)
        world.loop.close()
    return outcome


def untraced(seed: int) -> Outcome:
    """As `simulate`, without the trace: what may be sent to another process."""
    outcome = simulate(seed)
    outcome.trace = None
    return outcome


async def _live(world: World, clients: list[Client], faults: list[str]) -> None:
    loop = world.loop
    trouble = Faults(world)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(client.run()) for client in clients]
        breaking = tasks.create_task(trouble.run())
        while loop.time() < _TROUBLE and not _done(clients):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)  # virtual time, which costs nothing
        breaking.cancel()
        trouble.stop()
        until = loop.time() + _PATIENCE
        rested = False
        while not rested and loop.time() < until:
            await asyncio.sleep(_LOOK)
            rested = (
                _done(clients)
                and invariants.at_rest(world)
                and invariants.read_to_the_end(world, clients)
            )
        if not rested:
            faults.append(f"not at rest {_PATIENCE:.0f} s after the last fault")
            faults.extend(_unrest(world, clients))
        for task in running:
            task.cancel()
    faults.extend(invariants.at_the_end(world, clients))


def _done(clients: list[Client]) -> bool:
    return all(client.done for client in clients)


def _unrest(world: World, clients: list[Client]) -> Iterator[str]:
    for client in clients:
        told = client.told
        kept = world.disk.tables.sessions.get(told.session_id)
        if kept is None:
            yield f"{told.session_id}: not there"
            continue
        state = kept.state
        yield (
            f"{state.id}: {state.activity.status.name} {state.stop.name} needs {state.needs_brain}"
            f" generation {state.generation} holder {state.holder!r} waiting {state.waiting}"
            f" seen {len(told.seen)} of {len(kept.log)}, script done {client.done}"
        )


@contextmanager
def _alone(seed: int) -> Iterator[None]:
    """Nothing of the process's own chance or logs in it, and nothing of it left in the process."""
    before, config = random.getstate(), structlog.get_config()
    random.seed(seed)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    collecting = gc.isenabled()
    gc.disable()
    try:
        with ExitStack() as stack:
            # Sessions here are short, and yet their brains shall begin from checkpoints.
            stack.enter_context(mock.patch.object(leaving, "LEAST_EVENTS", 8))
            stack.enter_context(mock.patch.object(sending, "SHORT", 6))
            yield
    finally:
        if collecting:
            gc.enable()
        structlog.configure(**config)
        random.setstate(before)


@contextmanager
def _unheard() -> Iterator[None]:
    """Whatever the last tasks of a run have to say: they end in whatever state they were."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = hook
