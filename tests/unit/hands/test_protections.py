from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.hands.backends import trial
from services.hands.backends.docker import fitness
from services.hands.backends.docker.settings import EngineSettings
from services.hands.backends.port import BackendUnavailable
from services.hands.domain.protections import LEVELS, Protection, minimum, shortfall

SETTINGS = EngineSettings("unix:///x", "drover/sandbox")
ELSEWHERE = {name: f"{name}:[1]" for name in ("user", "pid", "mnt", "ipc", "uts", "net", "cgroup")}
WHOLE: dict[str, Any] = {
    "status": {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"},
    "namespaces": ELSEWHERE,
    "links": ["lo"],
    "writable": [],
    "nested": 1,
    "traced": 1,
    "shown": [],
}
ALL_GROUPS = frozenset({"memory", "pids", "cpu"})


WITHOUT_GROUPS = {name: ELSEWHERE[name] for name in ELSEWHERE if name != "cgroup"}


def own(name: str) -> str:
    return str(Path(f"/proc/self/ns/{name}").readlink())


def found(user: int = 200_000, groups: frozenset[str] = ALL_GROUPS, **inside: Any) -> trial.Facts:
    return trial.Facts({**WHOLE, **inside}, groups, user)


def lacking(facts: trial.Facts) -> set[Protection]:
    return {protection for protection, why in trial.held(facts).items() if why}


def test_each_level_has_all_that_the_one_before_has() -> None:
    sets = list(LEVELS.values())
    assert all(lower < higher for lower, higher in itertools.pairwise(sets))
    assert sets[-1] <= set(Protection)


def test_levels_and_names_are_taken_together() -> None:
    assert minimum("isolated, masked-proc") == LEVELS["isolated"] | {Protection.PROC}
    assert minimum("memory-limit") == {Protection.MEMORY}


@pytest.mark.parametrize("text", ["", " , ", "none", "isolated,memry-limit", "ISOLATED"])
def test_minimum_that_asks_for_nothing_or_for_what_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="isolated, limited, separate, own-kernel"):
        minimum(text)


def test_shortfall_names_what_is_missing_and_how_to_get_it() -> None:
    held = {**dict.fromkeys(Protection, ""), Protection.MEMORY: "run it as root"}
    assert shortfall(minimum("isolated"), held) == ""
    assert shortfall(minimum("limited"), held) == "memory-limit: run it as root"


def test_protection_that_nobody_speaks_of_does_not_hold() -> None:
    assert "masked-proc" in shortfall(minimum("masked-proc"), {})


def test_whole_sandbox_lacks_a_kernel_of_its_own_alone() -> None:
    assert lacking(found()) == {Protection.KERNEL}


@pytest.mark.parametrize(
    ("inside", "lost"),
    [
        ({"links": ["lo", "eth0"]}, Protection.NAMESPACES),
        ({"namespaces": {**ELSEWHERE, "pid": own("pid")}}, Protection.NAMESPACES),
        ({"namespaces": {**ELSEWHERE, "cgroup": own("cgroup")}}, Protection.GROUP_NAMESPACE),
        ({"namespaces": WITHOUT_GROUPS}, Protection.GROUP_NAMESPACE),
        ({"status": {**WHOLE["status"], "CapBnd": "00000000000000ff"}}, Protection.PRIVILEGES),
        ({"status": {**WHOLE["status"], "NoNewPrivs": "0"}}, Protection.PRIVILEGES),
        ({"status": {**WHOLE["status"], "Seccomp": "0"}}, Protection.FILTER),
        ({"traced": 0}, Protection.FILTER),
        ({"writable": ["/usr"]}, Protection.SYSTEM),
        ({"nested": 0}, Protection.NESTING),
        ({"shown": ["/proc/cmdline"]}, Protection.PROC),
    ],
)
def test_what_a_trial_does_not_find_is_said_to_be_lacking(
    inside: dict[str, Any], lost: Protection
) -> None:
    facts = found(**inside)
    assert lacking(facts) == {Protection.KERNEL, lost}
    assert len(trial.held(facts)[lost]) > 20


def test_limits_hold_where_a_group_has_them() -> None:
    assert lacking(found(groups=frozenset({"pids"}))) == {
        *(Protection.MEMORY, Protection.PROCESSORS, Protection.KERNEL),
    }


@pytest.mark.parametrize("user", [0, os.geteuid()])
def test_sandbox_that_is_the_hosts_own_user_is_no_sessions(user: int) -> None:
    assert Protection.USERS in lacking(found(user=user))


def test_groups_of_either_version_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(text: str) -> None:
        monkeypatch.setattr(Path, "read_text", lambda _path, **_: text)

    told("8:pids:/d/trial\n4:cpu,cpuacct:/d/trial\n3:memory:/other\n0::/\n")
    assert trial.grouped(1, "trial", ALL_GROUPS) == {"pids", "cpu"}
    told("0::/d/trial\n")
    assert trial.grouped(1, "trial", frozenset({"memory"})) == {"memory"}
    told("0::/\n")
    assert not trial.grouped(1, "trial", ALL_GROUPS)


@pytest.mark.parametrize(
    ("runtime", "path", "holds"),
    [("", "", False), ("runc", "/b/runc", False), ("runsc", "/x", True), ("g", "/b/runsc", True)],
)
def test_containers_have_a_kernel_of_their_own_by_their_runtime(
    runtime: str, path: str, holds: bool
) -> None:
    runtimes = {"runc": {}, runtime: {"path": path}}
    held = fitness.held(runtimes, replace(SETTINGS, runtime=runtime))
    assert (not held[Protection.KERNEL]) is holds


def test_engine_below_the_minimum_is_refused_with_how_to_get_there() -> None:
    info = {
        "OSType": "linux",
        "MemoryLimit": True,
        "PidsLimit": True,
        "CpuCfsPeriod": True,
        "CpuCfsQuota": True,
        "SecurityOptions": ["name=seccomp,profile=default"],
        "Runtimes": {"runc": {"path": "runc"}},
    }
    settings = replace(SETTINGS, minimum=minimum("own-kernel"))
    with pytest.raises(BackendUnavailable, match="own-kernel: set DROVER_SANDBOX_RUNTIME"):
        fitness.check(info, {"Version": "27.0"}, settings)
