"""What the engine is told, and that less is not taken for it (CASES S14)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.hands.backends.docker.container import (
    Files,
    Machine,
    Places,
    configuration,
    weaker,
)
from services.hands.backends.port import SandboxSpec, Volume, WayOut
from services.hands.backends.user_files import UserFiles
from services.hands.domain.limits import MIB, Limits

LIMITS = Limits(memory_bytes=64 * MIB, processes=40, cpus=4.0, tmp_bytes=8 * MIB)


def told(**changes: Any) -> dict[str, Any]:
    place = Path("/data/hands")
    given = {
        "user": 200_001,
        "image": "drover/sandbox",
        "runtime": "",
        "installation": "abc",
        "files": Files(place / "agent", UserFiles(place / "passwd", place / "group")),
        "machine": Machine(processors=2, swap_limits=True),
    }
    spec = SandboxSpec("hand_1", Volume(place / "workspaces" / "sesn_1", 200_001), LIMITS)
    return configuration(**{"spec": spec, **given, **changes})


def inspected(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What an engine says that did as it was told."""
    host = {**config["HostConfig"], **changes}
    mounts = [
        {"Destination": mount["Target"], "RW": not mount["ReadOnly"]} for mount in host["Mounts"]
    ]
    return {"HostConfig": host, "Config": {"User": config["User"]}, "Mounts": mounts}


def test_container_has_no_rights_no_network_and_a_user_of_its_own() -> None:
    config = told()
    host = config["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["ReadonlyRootfs"] is True
    assert host["Privileged"] is False
    assert host["NetworkMode"] == "none"
    assert host["LogConfig"]["Type"] == "none"
    assert config["User"] == "200001:200001"


def test_limits_are_those_of_the_sandbox_and_no_more_than_the_machine_has() -> None:
    host = told()["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (64 * MIB, 64 * MIB)
    assert host["PidsLimit"] == 40
    assert host["NanoCpus"] == 2_000_000_000
    assert f"size={8 * MIB}" in host["Tmpfs"]["/tmp"]  # noqa: S108
    without_swap = told(machine=Machine(processors=8, swap_limits=False))["HostConfig"]
    assert "MemorySwap" not in without_swap
    assert without_swap["NanoCpus"] == 4_000_000_000


def test_only_the_sessions_directories_can_be_written_and_no_engines_socket_is_there() -> None:
    mounts = told()["HostConfig"]["Mounts"]
    writable = {mount["Target"] for mount in mounts if not mount["ReadOnly"]}
    assert writable == {
        "/workspace",
        "/mnt/session/outputs",
        "/mnt/session/home",
        "/mnt/session/tool_outputs",
    }
    assert "docker.sock" not in json.dumps(mounts)


def test_hands_in_a_container_name_their_files_as_the_engine_does() -> None:
    there = Path("/engine/volumes/drover_hands/_data")
    machine = Machine(processors=2, swap_limits=True, places=Places(Path("/data"), there))
    own = {mount["Target"]: mount["Source"] for mount in told()["HostConfig"]["Mounts"]}
    theirs = {
        mount["Target"]: mount["Source"] for mount in told(machine=machine)["HostConfig"]["Mounts"]
    }
    assert own["/workspace"] == "/data/hands/workspaces/sesn_1/workspace"
    assert theirs == {
        target: f"{there}{source.removeprefix('/data')}" for target, source in own.items()
    }


def test_nothing_beside_the_hands_own_volume_is_mounted() -> None:
    elsewhere = Machine(2, swap_limits=True, places=Places(Path("/other"), Path("/engine")))
    with pytest.raises(ValueError, match="/data/hands"):
        told(machine=elsewhere)


def test_way_out_is_mounted_and_cannot_be_written_to() -> None:
    place = Path("/data/hands/egress/hand_1")
    spec = SandboxSpec(
        *("hand_1", Volume(Path("/data/hands/workspaces/sesn_1"), 200_001), LIMITS),
        way_out=WayOut(place, place / "ca-certificates.crt"),
    )
    mounts = {
        mount["Target"]: (mount["Source"], mount["ReadOnly"])
        for mount in told(spec=spec)["HostConfig"]["Mounts"]
    }
    assert mounts["/run/drover/egress"] == (str(place), True)
    bundle = (str(place / "ca-certificates.crt"), True)
    assert mounts["/etc/ssl/certs/ca-certificates.crt"] == bundle
    assert told(spec=spec)["HostConfig"]["NetworkMode"] == "none"
    assert not any("egress" in mount["Target"] for mount in told()["HostConfig"]["Mounts"])


def test_nothing_of_this_process_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_API_KEY", "secret-of-the-host")
    assert "secret-of-the-host" not in json.dumps(told())


def test_runtime_is_named_where_one_is_set() -> None:
    assert "Runtime" not in told()["HostConfig"]
    host = told(runtime="runsc")["HostConfig"]
    assert host["Runtime"] == "runsc"
    assert host["PidsLimit"] > 40  # its own threads count


def test_engine_that_did_as_it_was_told_is_not_weaker() -> None:
    config = told(runtime="runsc")
    assert not weaker(config, inspected(config))


@pytest.mark.parametrize(
    "change",
    [
        {"Privileged": True},
        {"CapDrop": None},
        {"CapAdd": ["SYS_ADMIN"]},
        {"SecurityOpt": ["seccomp=unconfined"]},
        {"ReadonlyRootfs": False},
        {"NetworkMode": "default"},
        {"PidsLimit": 0},
        {"Memory": 0},
        {"NanoCpus": 0},
        {"IpcMode": "host"},
        {"PidMode": "host"},
        {"Devices": [{"PathOnHost": "/dev/mem"}]},
        {"GroupAdd": ["0"]},
        {"Runtime": "runc"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_is_weaker_is_noticed(change: dict[str, Any]) -> None:
    config = told(runtime="runsc")
    found = weaker(config, inspected(config, **change))
    assert [text.split()[0] for text in found] == list(change)


def test_container_that_installs_the_system_has_little_of_root_and_nothing_of_a_session() -> None:
    place = Path("/data/hands/egress/hand_1")
    spec = SandboxSpec(
        *("hand_1", Volume(Path("/data/hands/packages"), 0), LIMITS),
        way_out=WayOut(place, place / "ca-certificates.crt"),
        installs_system=True,
    )
    config = told(spec=spec, user=0)
    host = config["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] == ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert (host["NetworkMode"], host["Privileged"]) == ("none", False)
    assert host["MaskedPaths"] == told()["HostConfig"]["MaskedPaths"]
    assert {mount["Target"] for mount in host["Mounts"]} == {"/run/agent", "/run/drover/egress"}
    assert all(mount["ReadOnly"] for mount in host["Mounts"])
    assert {"/workspace", "/mnt/session"} <= set(host["Tmpfs"])
    assert not weaker(config, inspected(config, CapAdd=[f"CAP_{one}" for one in host["CapAdd"]]))
    more = [*host["CapAdd"], "CAP_SYS_ADMIN"]
    assert weaker(config, inspected(config, CapAdd=more)) == ['CapAdd is ["SYS_ADMIN"]']


def test_other_user_and_mount_that_nobody_asked_for_are_noticed() -> None:
    config = told()
    shown = inspected(config)
    shown["Config"]["User"] = ""
    shown["Mounts"].append({"Destination": "/var/lib/data", "RW": True})
    assert [text.split()[0] for text in weaker(config, shown)] == ["User", "Mounts"]
