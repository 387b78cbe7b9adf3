from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.hands.backends.docker.fitness import check, check_host, check_image
from services.hands.backends.docker.settings import EngineSettings
from services.hands.backends.port import BackendUnavailable, ImageGone

SETTINGS = EngineSettings("unix:///x", "drover/sandbox", engine_minimum="20.10")
INFO = {
    "OSType": "linux",
    "MemoryLimit": True,
    "PidsLimit": True,
    "CpuCfsPeriod": True,
    "CpuCfsQuota": True,
    "SwapLimit": False,
    "NCPU": 4,
    "SecurityOptions": ["name=seccomp,profile=default"],
    "Runtimes": {"runc": {}, "runsc": {}},
}
VERSION = {"Version": "20.10.24+dfsg1", "Components": [{"Name": "runc", "Version": "1.1.5+ds1"}]}


def test_usual_engine_is_fit() -> None:
    machine = check(INFO, VERSION, SETTINGS)
    assert (machine.processors, machine.swap_limits) == (4, False)


@pytest.mark.parametrize(
    ("info", "settings", "text"),
    [
        ({"OSType": "windows"}, {}, "windows"),
        ({"MemoryLimit": False}, {}, "cannot limit memory"),
        ({"PidsLimit": None}, {}, "number of processes"),
        ({"SecurityOptions": []}, {}, "filters no system calls"),
        ({"SecurityOptions": ["name=seccomp,profile=unconfined"]}, {}, "filters no system calls"),
        ({"SecurityOptions": ["name=seccomp", "name=rootless"]}, {}, "rootless"),
        ({}, {"runtime": "kata"}, "no runtime kata, only runc, runsc"),
        ({}, {"engine_minimum": "27"}, "version 20.10.24"),
        ({}, {"engine_minimum": "20.10.25"}, "20.10.25 is the least"),
        ({}, {"runc_minimum": "1.2.8"}, "its runc is of version 1.1.5"),
    ],
)
def test_engine_that_is_not_fit_is_refused_with_the_reason(
    info: dict[str, Any], settings: dict[str, str], text: str
) -> None:
    with pytest.raises(BackendUnavailable, match=text):
        check({**INFO, **info}, VERSION, replace(SETTINGS, **settings))


@pytest.mark.parametrize(
    ("runtime", "told", "passes"),
    [
        ("", {}, True),
        ("runsc", {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none"]}, False),
        ("runsc", {"path": "/usr/bin/runsc"}, False),
        ("runsc", {"runtimeArgs": ["--host-uds=open"]}, True),
        ("runsc", {"runtimeArgs": ["-host-uds=all"]}, True),
        ("runsc", {"runtimeArgs": ["--host-uds=none"]}, False),
        ("runsc", {"runtimeArgs": ["--fsgofer-host-uds"]}, True),
        ("strict", {"path": "/opt/runsc", "runtimeArgs": None}, False),
        ("kata", {"path": "/usr/bin/containerd-shim-kata-v2"}, False),
    ],
)
def test_kernel_of_its_own_has_a_way_out_where_it_was_told_to(
    runtime: str, told: dict[str, Any], passes: bool
) -> None:
    info = {**INFO, "Runtimes": {"runc": {}, runtime or "runc": told}}
    assert check(info, VERSION, replace(SETTINGS, runtime=runtime)).sockets is passes


@pytest.mark.parametrize("host", ["tcp://10.0.0.1:2375", "ssh://me:secret@there"])
def test_engine_elsewhere_is_refused_without_its_address(host: str) -> None:
    with pytest.raises(BackendUnavailable, match="name the socket of an engine here") as refused:
        check_host(host)
    assert "secret" not in str(refused.value)


def test_missing_image_is_told_with_how_to_build_it() -> None:
    with pytest.raises(ImageGone, match="docker build -t team/box deploy/images/sandbox"):
        check_image("team/box", None)


def test_image_that_would_bring_a_writable_volume_is_refused() -> None:
    with pytest.raises(BackendUnavailable, match="declares volumes"):
        check_image("db", {"Config": {"Volumes": {"/var/lib/db": {}}}})
    check_image("drover/sandbox", {"Config": {"Volumes": None}})


def test_images_are_made_of_containers_only_where_the_engine_has_their_files() -> None:
    assert not check(INFO, VERSION, SETTINGS).no_layers
    own_kernel = check(INFO, VERSION, replace(SETTINGS, runtime="runsc"))
    assert "runtime runsc" in own_kernel.no_layers
    options = [*INFO["SecurityOptions"], "name=userns"]
    assert (
        "userns-remap" in check({**INFO, "SecurityOptions": options}, VERSION, SETTINGS).no_layers
    )
