"""S8: WORKDIR /proc/self/fd/N, and whatever else a leaked descriptor would give (Leaky Vessels)."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.hands.domain.recipe import Recipe
from tests.adversarial.sandbox.probes import probe
from tests.doubles.docker_engine import IMAGE, Engine
from tests.doubles.hands_stack import HandsStack, Sandboxes, text


@pytest.mark.asyncio(loop_scope="module")
async def test_no_descriptor_or_directory_of_a_process_leads_to_the_host(
    shared: HandsStack,
) -> None:
    told = await probe(
        shared,
        "found['own'] = sorted(os.listdir('/'))\n"
        "found['reached'] = []\n"
        "for pid in pids():\n"
        "    for number in range(1024):\n"
        "        for up in ('', '/..', '/../..', '/../../../../../../..'):\n"
        "            try:\n"
        "                listing = sorted(os.listdir(f'/proc/{pid}/fd/{number}{up}'))\n"
        "            except OSError:\n"
        "                break\n"
        "            found['reached'].append(listing)\n"
        "found['cwd'] = os.getcwd()\n"
        "os.chdir('/workspace/../../../../../..')\n"
        "found['top'] = os.getcwd(), sorted(os.listdir('.'))\n",
    )
    assert told["cwd"] == "/workspace"
    assert told["top"] == ["/", told["own"]]
    for listing in told["reached"]:
        assert not {"root", "home", "boot", "lost+found"} & set(listing) - set(told["own"])


@pytest.mark.asyncio(loop_scope="module")
async def test_shell_cannot_be_led_out_by_a_working_directory(shared: HandsStack) -> None:
    for number in (3, 7, 8, 9, 10):
        assert (
            await shared.run("bash", command=f"cd /proc/self/fd/{number}/../../ && cat etc/shadow")
        ).is_error
    await shared.bash("cd /workspace")


async def test_image_whose_working_directory_is_a_descriptor_gets_another(
    sandboxes: Sandboxes, hands: HandsStack, request: pytest.FixtureRequest
) -> None:
    if sandboxes.kind == "local":
        return  # it takes no image
    engine: Engine = request.getfixturevalue("docker_engine")
    for number in (7, 8):
        name = f"drover/test-workdir-{number}"
        container = engine.docker("create", "--network", "none", IMAGE, "true")
        engine.docker("commit", "--change", f"WORKDIR /proc/self/fd/{number}", container, name)
        engine.docker("rm", container)
        given = (f"sesn_{number}", f"c{number}", 1, "bash")
        command = '{"command": "pwd; readlink /proc/1/cwd; cat /proc/1/cwd/root/.bashrc; :"}'
        result = await hands.executor.execute(*given, command, recipe=Recipe(image=name))
        shown = text(result).split("\n")
        assert shown[0] == "/workspace"
        assert not [line for line in shown[1:] if line.startswith("/") and line != "/"]
    assert str(Path.cwd()) not in text(result)
