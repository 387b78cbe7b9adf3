"""The embedded backend starts nothing below the operator's minimum, and says what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drover.hands.v1.hands_service_pb2 import VERDICT_COMPLETED, VERDICT_NOT_RUN
from services.hands.backends import bubblewrap, seccomp
from services.hands.backends.cgroup import ControlGroups
from services.hands.backends.local import LocalBackend
from services.hands.domain.protections import LEVELS, Protection
from tests.doubles.hands_stack import hands_stack, text


async def test_machine_that_has_the_default_minimum_starts_sandboxes(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / "hands")
    async with hands_stack(tmp_path, backend=backend) as hands:
        result = await hands.run("bash", command="true")
        assert result.verdict == VERDICT_COMPLETED
        held = {protection for protection, why in backend.protections.items() if not why}
        assert held >= LEVELS["isolated"]
        assert (Protection.USERS in held) is (os.geteuid() == 0)
        assert not (tmp_path / "hands" / "trial").exists()


@pytest.mark.parametrize("forks", [True, False])
async def test_all_of_a_sandbox_is_in_its_groups_when_a_command_runs(
    tmp_path: Path, forks: bool
) -> None:
    backend = LocalBackend(tmp_path / "hands", forks=forks)
    async with hands_stack(tmp_path, backend=backend) as hands:
        await hands.bash("true")
        controllers = backend._groups.controllers
        if not controllers:
            pytest.skip("no control group can be made here")
        (hand,) = hands.pool.hands()
        groups = backend._groups.leftovers()  # those that there are
        (group,) = [one for one in groups if one.directories[0].name == hand.id]
        for directory in group.directories:
            pids = (directory / "cgroup.procs").read_text(encoding="ascii").split()
            # The first process, the agent, the shell, and bubblewrap's own where that runs them.
            assert len(pids) == 4, directory


async def test_kernel_of_its_own_is_more_than_there_is(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / "hands", frozenset({Protection.KERNEL}))
    async with hands_stack(tmp_path, backend=backend) as hands:
        result = await hands.run("bash", command="true")
    assert result.verdict == VERDICT_NOT_RUN
    assert "less than DROVER_SANDBOX_MINIMUM here. own-kernel: use docker" in text(result)


@pytest.mark.parametrize("absent", ["filter", "nesting", "groups", "masks"])
async def test_what_is_absent_is_named_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: str
) -> None:
    missing = {
        "filter": "system-call-filter: there is no filter for",
        "nesting": "no-nested-namespaces: a trial sandbox could make a user namespace",
        "groups": "memory-limit: no memory control group can be made here",
        "masks": "masked-proc: a trial sandbox could read /proc/cmdline",
    }
    if absent in {"filter", "nesting"}:
        monkeypatch.setattr(seccomp, "program", lambda: None)
    if absent == "nesting":
        told = bubblewrap.arguments

        def arguments(*given: object, **more: object) -> list[str]:
            return [word for word in told(*given, **more) if word != "--disable-userns"]  # type: ignore[arg-type]

        monkeypatch.setattr(bubblewrap, "arguments", arguments)
    if absent == "groups":
        monkeypatch.setattr(ControlGroups, "find", lambda _name: ControlGroups({}, unified=False))
    if absent == "masks":
        monkeypatch.setattr(bubblewrap, "_masked", tuple)
    minimum = LEVELS["limited"] | {Protection.PROC}
    if os.geteuid() != 0 and absent != "groups":
        minimum = LEVELS["isolated"] | {Protection.PROC}
    backend = LocalBackend(tmp_path / "hands", minimum)
    async with hands_stack(tmp_path, backend=backend) as hands:
        result = await hands.run("bash", command="true")
    assert result.verdict == VERDICT_NOT_RUN
    assert missing[absent] in text(result)


async def test_trial_leaves_nothing(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / "hands")
    await backend.start()
    name = backend._groups_name
    await backend.close()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{name}"))
    assert not list((tmp_path / "hands").glob("trial*"))
