"""The world of one run: its loop, its disk, its network, its processes and who uses them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from drover.agent.v1 import tool_pb2
from services.brain.harness.registry import HARNESS_KEY
from tests.doubles.session_registry import FakeAgents, FakeEnvironments
from tests.simulation import processes, servers
from tests.simulation.catalog import LARGE, SMALL, catalogue
from tests.simulation.disk import Disk
from tests.simulation.loop import Life, SimLoop
from tests.simulation.model import Model
from tests.simulation.network import KEEPALIVE, Network
from tests.simulation.sandbox import Fate
from tests.simulation.trace import Trace
from tests.simulation.work import Authors

if TYPE_CHECKING:
    from services.brain.harness.port import Harness

_ALLOW = tool_pb2.PERMISSION_POLICY_TYPE_ALWAYS_ALLOW
_AUTO = tool_pb2.PERMISSION_POLICY_TYPE_AUTO
_POLICIES = (_ALLOW, tool_pb2.PERMISSION_POLICY_TYPE_ALWAYS_ASK, _AUTO)

_STOP = 3.0
"""Seconds at most that a process has for stopping."""
_RESTART = 1.5
"""Seconds at most until a process that has died is there again."""


@dataclass(frozen=True, slots=True)
class Mutations:
    """Deliberate mistakes, to see that they are found."""

    acknowledge_early: bool = False


NONE = Mutations()


class World:
    """Everything of one run. `failures` is what broke in a way that nothing may."""

    def __init__(self, seed: int, mutations: Mutations) -> None:
        self.rng = Random(seed)  # noqa: S311
        self.mutations = mutations
        self.loop = SimLoop(self.rng)
        self.trace = Trace(self.loop)
        self.network = Network(self.loop, self.rng, self.trace)
        self.disk = Disk(self.loop, self.rng, self.trace)
        self.disk.may_lie = self.rng.random() < 0.3
        self.model = Model(self.loop, self.rng, self.trace)
        self.fate = Fate(self.disk)
        self.authors = Authors()
        self.models = catalogue()
        self.harnesses = processes.harnesses(self.models)
        self.client_life = Life("client")
        self.max_sessions = 1 + int(self.rng.random() * 4)
        self.agents, self.environments = FakeAgents(), FakeEnvironments()
        # By the seed, not by chance: all other seeds go as they did.
        self.self_hosted = seed % 5 == 0
        self.server: servers.Server | None = None
        self.all_lives: list[Life] = [self.network.life, self.disk.life, self.client_life]
        if seed % 4 == 3:
            self.all_lives.append(Life("server"))
            self.server = servers.Server(self.disk, self.all_lives[-1], self.fate)
            self.agents.agent.mcp_servers.append(servers.SERVER)
        if self.self_hosted:
            self.environments.environment.config.self_hosted.SetInParent()
        self.agents.agent.metadata.clear()
        self.agents.agent.system = "Be brief."
        self.agents.agent.model.id = LARGE if self.rng.random() < 0.6 else SMALL
        if self.agents.agent.model.id == LARGE and self.rng.random() < 0.15:
            self.agents.agent.metadata[HARNESS_KEY] = "minimal"
        self.agents.agent.tools.extend(self.tools())
        self.processes: dict[str, Any] = {}
        self.failures: list[str] = []
        self.counts: Counter[str] = Counter()
        self._lives: dict[str, Life] = {}
        self._tasks: dict[str, Any] = {}
        registry = Life("registry")
        self.all_lives.append(registry)
        processes.registry(self, registry)
        for name in ("session", "hands", *processes.BRAINS):
            self.start(name)

    def all_failures(self) -> list[str]:
        """What broke in a way that nothing may."""
        return [*self.failures, *self.network.failures, *self.loop.failures]

    @property
    def harness(self) -> Harness:
        """The one that the agent asks for."""
        return self.harnesses.choose(self.agents.agent)

    def tools(self) -> list[tool_pb2.Tool]:
        """An agent's tools: what is not run at once, and why, is drawn; `edit` is not enabled."""
        toolset = tool_pb2.Tool()
        configs = toolset.agent_toolset.configs
        for name in ("write", "bash"):
            draw = self.rng.random()
            policy = _POLICIES[int(draw * len(_POLICIES))] if name == "write" else _ALLOW
            if name == "bash" and draw < 0.3:
                policy = _AUTO
            configs.add(name=name).permission_policy.type = policy
        configs.add(name="edit", enabled=False)
        custom = tool_pb2.Tool()
        custom.custom.name, custom.custom.description = "ask_owner", "Ask the owner."
        custom.custom.input_schema = '{"type":"object"}'
        if self.server is None:
            return [toolset, custom]
        policy = _POLICIES[int(self.rng.random() * len(_POLICIES))]
        return [toolset, custom, servers.toolset(policy)]

    def steps_of_script(self) -> int:
        return 1 + int(self.rng.random() * 5)

    # processes

    def life(self, name: str) -> Life:
        return self._lives[name]

    def start(self, name: str) -> None:
        """Starts a process, in the place of one that has died."""
        before = self._lives.get(name)
        life = Life(name, 1 if before is None else before.number + 1)
        life.on_death = self.kill
        self._lives[name] = life
        self.all_lives.append(life)
        kind: Any = {
            "session": processes.SessionProcess,
            "hands": processes.HandsProcess,
        }.get(name, processes.BrainProcess)
        self.trace.note(repr(life), "starts")
        process = self.processes[name] = kind(self, life)
        task = self._tasks[name] = self.loop.spawn(life, process.run())
        task.add_done_callback(lambda done: self._ended(life, done))

    def _ended(self, life: Life, done: Any) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self.failures.append(f"{life!r} ended with {error!r}")

    def stop(self, life: Life) -> None:
        """Tells a process to stop. It has a while for it, and is started again soon."""
        self.trace.note(repr(life), "stops")
        self.network.shut(life)
        self._tasks[life.name].cancel()
        context = self.network.life.context()
        self.loop.call_later(_STOP * self.rng.random(), self._stopped, life, context=context)

    def _stopped(self, life: Life) -> None:
        if not life.dead:
            self.kill(life)

    def kill(self, life: Life) -> None:
        """Kills a process, and has it started again soon."""
        life.dead, life.steps_left = True, -1
        self.trace.note(repr(life), "dies")
        self.network.forget(life)
        again = self.loop.time() + _RESTART * self.rng.random()
        self.loop.call_at(again, self._restart, life.name, context=self.network.life.context())

    def _restart(self, name: str) -> None:
        if self._lives[name].dead:
            self.start(name)

    def suspend(self, life: Life, seconds: float) -> None:
        """Stops a process for a while, as a machine that is busy elsewhere does.

        Whether its peers notice depends on what still answers for it.
        """
        life.paused = True
        self.trace.note(repr(life), "pauses", round(seconds, 3))
        now, context = self.loop.time(), self.network.life.context()
        self.loop.call_at(now + seconds, self._go_on, life, context=context)
        if seconds > KEEPALIVE and self.rng.random() < 0.5:
            self.loop.call_at(now + KEEPALIVE, self.network.forget, life, context=context)

    def _go_on(self, life: Life) -> None:
        if life.paused:
            self.trace.note(repr(life), "goes on")
            self.loop.resume(life)

    def kill_a_sandbox(self) -> None:
        sandboxes = self.processes["hands"].backend.sandboxes
        if sandboxes and self.life("hands").runs:
            sandboxes[int(self.rng.random() * len(sandboxes))].die()
