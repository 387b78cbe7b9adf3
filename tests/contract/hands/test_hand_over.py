"""Hands by name, limits by environment and pools by recipe, over each kind of sandbox."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chassis.context import DEFAULT_WORKSPACE
from chassis.errors import DroverError, Reason
from services.hands.domain.handover import Generations, HandOver
from services.hands.domain.recipe import Recipe, Wanted
from tests.doubles.hands_stack import HandsStack, Sandboxes, printed, text
from tests.doubles.hands_waiting import eventually, ready_spares

GIVER, RECEIVER = "sesn_giver", "sesn_receiver"
GIVEN = HandOver(GIVER, "build", RECEIVER, "tools")


async def bash(hands: HandsStack, session_id: str, name: str, call_id: str, command: str) -> str:
    given = (session_id, call_id, 1, "bash", json.dumps({"command": command}))
    result = await hands.executor.execute(*given, name=name)
    assert not result.is_error, text(result)
    return printed(result)


async def test_named_hands_of_a_session_share_nothing(hands: HandsStack) -> None:
    for name in ("", "build"):
        await bash(hands, GIVER, name, f"c_{name}", f"echo {name or 'own'} >f; x={name or 'own'}")
    assert await bash(hands, GIVER, "", "c1", "cat f; echo $x; ls") == "own\nown\nf"
    assert await bash(hands, GIVER, "build", "c2", "cat f; echo $x; ls") == "build\nbuild\nf"


async def test_handed_over_sandbox_goes_on_as_it_was_and_its_files_outlive_it(
    hands: HandsStack,
) -> None:
    await bash(hands, RECEIVER, "", "c0", "true")
    await bash(hands, GIVER, "build", "c1", "echo kept >f; x=5; mkdir d; cd d; sleep 1000 &")
    processes = hands.processes("sesn_giver@build")
    moved = await hands.executor.hand_over(GIVEN, Generations(1), DEFAULT_WORKSPACE)
    assert moved is not None
    assert await bash(hands, RECEIVER, "tools", "c1", "echo $x; pwd; jobs | wc -l") == (
        "5\n/workspace/d\n1"
    )
    assert hands.processes("sesn_receiver@tools") & processes
    with pytest.raises(DroverError) as refused:
        await bash(hands, GIVER, "build", "c2", "cat f")
    assert refused.value.reason is Reason.ARCHIVED
    await hands.executor.release(RECEIVER, "tools")
    assert await bash(hands, RECEIVER, "tools", "c2", "echo x=$x; cat f") == "x=\nkept"


async def test_limits_of_an_environment_hold_and_are_no_others(hands: HandsStack) -> None:
    recipe = Recipe(wanted=Wanted(file_mib=8, tmp_mib=16))
    command = "head -c 20M /dev/zero >f; wc -c <f; df -m --output=size /tmp | tail -1"
    given = ("c1", 1, "bash", json.dumps({"command": command}))
    shown = await hands.executor.execute("sesn_small", *given, recipe=recipe)
    assert [line.strip() for line in printed(shown).split("\n")][-2:] == [str(8 << 20), "16"]
    shown = await hands.executor.execute("sesn_other", *given)
    assert [line.strip() for line in printed(shown).split("\n")] == [str(20 << 20), "128"]


async def test_spare_of_a_recipe_is_claimed_at_once_and_only_by_that_recipe(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    recipe = Recipe(wanted=Wanted(memory_mib=256))
    async with sandboxes.stack(tmp_path, pools={recipe: 1}) as hands:
        hands.pool.fill()
        await eventually(lambda: ready_spares(hands.pool), 30)
        (shelf,) = (one for one in hands.pool.spares.shelves if one.wanted)
        spare = shelf.ready[0][0]
        async with hands.pool.use("sesn_other") as other:
            assert other is not spare
        async with hands.pool.use("sesn_same", recipe) as claimed:
            assert claimed is spare  # how long that takes, the bench shows
