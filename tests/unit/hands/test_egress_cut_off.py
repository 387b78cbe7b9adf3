"""A sandbox that can have no way out: said where it matters, and never open instead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from chassis.clock import SystemClock
from chassis.secret import Secret
from services.hands.backends.port import SandboxSpec
from services.hands.domain.repository import Repository
from services.hands.egress.cut_off import missing
from services.hands.egress.grants import Grant
from services.hands.pool import Pool, PoolSize
from services.hands.workspace import Workspaces
from tests.doubles.egress_outside import running_outside
from tests.doubles.hands_backend import ScriptedBackend, ScriptedSandbox
from tests.doubles.hands_waiting import eventually


def granted(**more: Any) -> Grant:
    return Grant(Secret("x"), 0.0, 0.0, **more)


def test_session_that_needs_no_network_is_told_nothing() -> None:
    assert missing(granted(), "kubernetes") == ()


def test_session_is_told_what_it_has_to_do_without() -> None:
    repository = Repository("sesrsc_1", "https://github.com/o/r", "/workspace/r")
    (error,) = missing(
        granted(variables={"API_KEY": "p"}, repositories=(repository,)), "kubernetes"
    )
    assert error.WhichOneof("error") == "unknown_error"
    for words in ("kubernetes sandboxes have no network", "API_KEY", "https://github.com/o/r"):
        assert words in error.message


class CutOff(ScriptedBackend):
    """Its sandboxes take no way out along."""

    async def launch(self, spec: SandboxSpec) -> ScriptedSandbox:
        sandbox = await super().launch(spec)
        sandbox.has_way_out = False
        return sandbox


def _any(backend: ScriptedBackend) -> Any:
    return backend


async def test_hand_without_a_way_out_says_what_its_session_misses(tmp_path: Path) -> None:
    workspaces, backend = Workspaces(tmp_path, privileged=False), _any(CutOff())
    await workspaces.start()
    async with running_outside() as outside, asyncio.TaskGroup() as tasks:
        outside.granter.variables["sesn_1"] = {"API_KEY": "p"}
        pool = Pool(
            backend,
            workspaces,
            tasks,
            size=PoolSize(spares=0),
            clock=SystemClock(),
            ids=lambda prefix: f"{prefix}_1",
            network=await outside.network(tmp_path, tasks),
        )
        async with pool.use("sesn_1") as hand:
            assert hand.access is None
            await eventually(lambda: hand.problems)
            assert "API_KEY" in hand.problems[0].message
        assert not list((tmp_path / "egress").iterdir())
        await pool.close()
