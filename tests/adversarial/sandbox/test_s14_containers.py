"""S14: what the engine itself says of a container, and engines that give less."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drover.hands.v1.hands_service_pb2 import VERDICT_NOT_RUN
from services.hands.backends.docker import container
from services.hands.domain.protections import LEVELS
from tests.doubles.docker_engine import Engine
from tests.doubles.hands_stack import HandsStack, Sandboxes, hands_stack, text


@pytest.fixture(params=["", "runsc"], ids=["runc", "runsc"])
def sandboxes(request: pytest.FixtureRequest, docker_engine: Engine) -> Sandboxes:
    if request.param and request.param not in docker_engine.runtimes:
        pytest.skip(f"no {request.param}: apt-get install --no-install-recommends {request.param}")
    return Sandboxes("docker", docker_engine.host, request.param)


@pytest.fixture
def plain(docker_engine: Engine) -> Sandboxes:
    return Sandboxes("docker", docker_engine.host)


async def inspected(engine: Engine, hands: HandsStack) -> dict[str, Any]:
    assert await hands.bash("id -u") != "0"
    label = f"label={container.INSTALLATION}={hands.backend._installation}"
    name = engine.docker("ps", "--quiet", "--no-trunc", "--filter", label)
    found: list[dict[str, Any]] = json.loads(engine.docker("inspect", name))
    return found[0]


async def test_container_is_as_hardened_as_it_was_asked_for(
    hands: HandsStack, docker_engine: Engine
) -> None:
    shown = await inspected(docker_engine, hands)
    host, config = shown["HostConfig"], shown["Config"]
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert not host["Privileged"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert not [option for option in host["SecurityOpt"] if "unconfined" in option]
    assert host["ReadonlyRootfs"]
    assert host["NetworkMode"] == "none"
    assert not shown["NetworkSettings"]["Ports"]
    assert host["PidMode"] == ""
    assert (host["IpcMode"], host["CgroupnsMode"], host["UTSMode"]) == ("private", "private", "")
    assert host["PidsLimit"] in {64, 64 + 256}
    assert host["Memory"] == 512 << 20
    assert host["NanoCpus"] == 1_000_000_000
    assert not host["Devices"]
    assert not host["DeviceRequests"]
    assert not host["Binds"]
    assert {"/proc/kcore", "/proc/keys", "/proc/cmdline", "/sys/firmware"} <= {*host["MaskedPaths"]}
    assert {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq"} <= {*host["ReadonlyPaths"]}
    user = config["User"].split(":")[0]
    assert int(user) > 0
    for mount in shown["Mounts"]:
        assert mount["Type"] == "bind"
        assert not mount["Source"].endswith(".sock")
        assert mount["Source"].startswith(str(hands.backend._directory.parent))
    said = json.dumps(shown)
    for secret in ("docker.sock", "ANTHROPIC", "DROVER_"):
        assert secret not in said


Change = Callable[[dict[str, Any]], object]
WEAKER: dict[str, Change] = {
    "CapDrop": lambda host: host.update(CapDrop=["NET_RAW"]),
    "CapAdd": lambda host: host.update(CapAdd=["SYS_ADMIN"]),
    "Privileged": lambda host: host.update(Privileged=True),
    "SecurityOpt": lambda host: host.update(SecurityOpt=[]),
    "ReadonlyRootfs": lambda host: host.update(ReadonlyRootfs=False),
    "NetworkMode": lambda host: host.update(NetworkMode="bridge"),
    "PidMode": lambda host: host.update(PidMode="host"),
    "IpcMode": lambda host: host.update(IpcMode="host"),
    "UTSMode": lambda host: host.update(UTSMode="host"),
    "CgroupnsMode": lambda host: host.update(CgroupnsMode="host"),
    "PidsLimit": lambda host: host.update(PidsLimit=0),
    "Memory": lambda host: host.update(Memory=0),
    "NanoCpus": lambda host: host.update(NanoCpus=0),
    "Devices": lambda host: host.update(Devices=[{"PathOnHost": "/dev/mem"}]),
    "VolumesFrom": lambda host: host.update(VolumesFrom=["other"]),
    "GroupAdd": lambda host: host.update(GroupAdd=["docker"]),
    "masked": lambda host: host.update(MaskedPaths=[]),
    "read-only": lambda host: host.update(ReadonlyPaths=[]),
    "unconfined": lambda host: host["SecurityOpt"].append("seccomp=unconfined"),
    "apparmor:unconfined": lambda host: host["SecurityOpt"].append("apparmor:unconfined"),
}


async def test_whatever_is_weaker_than_asked_for_is_seen(
    plain: Sandboxes, docker_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def remembered(*given: Any, **more: Any) -> dict[str, Any]:
        asked.append(configuration(*given, **more))
        return asked[-1]

    configuration = container.configuration
    monkeypatch.setattr(container, "configuration", remembered)
    async with plain.stack(tmp_path) as hands:
        shown = await inspected(docker_engine, hands)
    assert container.weaker(asked[0], shown) == []
    for name, weaken in WEAKER.items():
        weakened = copy.deepcopy(shown)
        weaken(weakened["HostConfig"])
        assert any(name in found for found in container.weaker(asked[0], weakened)), name
    for place in ("/var/run/docker.sock", "/", "/proc"):
        weakened = copy.deepcopy(shown)
        weakened["Mounts"].append({"Source": place, "Destination": "/host", "RW": True})
        assert any("Mounts" in found for found in container.weaker(asked[0], weakened))
    weakened = copy.deepcopy(shown)
    weakened["Config"]["User"] = "0:0"
    assert any("User" in found for found in container.weaker(asked[0], weakened))


@pytest.mark.parametrize(
    "weaken",
    [
        lambda host: host.update(CapDrop=[], CapAdd=["KILL"]),
        lambda host: host.update(ReadonlyRootfs=False),
        lambda host: host["SecurityOpt"].append("seccomp=unconfined"),
        lambda host: host.update(PidMode="host"),
    ],
    ids=["capabilities", "root", "seccomp", "processes"],
)
async def test_engine_that_gives_less_is_refused_and_nothing_is_left(
    plain: Sandboxes,
    docker_engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    weaken: Change,
) -> None:
    def weak(*given: Any, **more: Any) -> dict[str, Any]:
        asked = configuration(*given, **more)
        monkeypatch.setattr(container, "weaker", lambda _asked, has: weaker(asked, has))
        given_less = copy.deepcopy(asked)
        weaken(given_less["HostConfig"])
        return given_less

    configuration, weaker = container.configuration, container.weaker
    monkeypatch.setattr(container, "configuration", weak)
    async with plain.stack(tmp_path) as hands:
        result = await hands.run("bash", command="true")
        assert result.verdict == VERDICT_NOT_RUN
        assert "less protection than it was told" in text(result)
        label = f"label={container.INSTALLATION}={hands.backend._installation}"
        assert not docker_engine.docker("ps", "--all", "--quiet", "--filter", label)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"engine_minimum": "99"}, "99 is the least allowed"),
        ({"runc_minimum": "99.1"}, "its runc is of version"),
        ({"minimum": LEVELS["own-kernel"]}, "own-kernel: set DROVER_SANDBOX_RUNTIME"),
        ({"runtime": "kata"}, "no runtime kata"),
    ],
)
async def test_engine_below_the_operators_minimum_is_refused(
    plain: Sandboxes, tmp_path: Path, settings: dict[str, Any], complaint: str
) -> None:
    backend = plain.backend(tmp_path / "hands", **settings)
    async with hands_stack(tmp_path, backend=backend) as hands:
        result = await hands.run("bash", command="true")
        assert result.verdict == VERDICT_NOT_RUN
        assert complaint in text(result)


async def test_kernel_of_its_own_meets_the_highest_minimum(
    docker_engine: Engine, tmp_path: Path
) -> None:
    if "runsc" not in docker_engine.runtimes:
        pytest.skip("no runsc: apt-get install --no-install-recommends runsc")
    given = Sandboxes("docker", docker_engine.host, "runsc")
    backend = given.backend(tmp_path / "hands", minimum=LEVELS["own-kernel"])
    async with hands_stack(tmp_path, backend=backend) as hands:
        host = Path("/proc/version").read_text(encoding="utf-8").strip()
        assert await hands.bash("cat /proc/version") != host
