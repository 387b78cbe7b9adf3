from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.hands.backends import cgroup
from services.hands.backends.cgroup import ControlGroups
from services.hands.domain.limits import Limits

LIMITS = Limits(memory_bytes=1 << 30, processes=64, cpus=0.5)


def version_one(root: Path) -> Path:
    for controller in ("memory", "pids", "cpu"):
        (root / controller).mkdir(parents=True)
    return root


def test_first_version_has_a_hierarchy_for_each_limit(tmp_path: Path) -> None:
    groups = ControlGroups.find("drover", version_one(tmp_path))
    group = groups.make("hand_1", LIMITS)
    group.add([11])
    wanted = {
        "memory/drover/hand_1/memory.limit_in_bytes": str(1 << 30),
        "pids/drover/hand_1/pids.max": "64",
        "cpu/drover/hand_1/cpu.cfs_quota_us": "50000",
        "cpu/drover/hand_1/cpu.cfs_period_us": "100000",
        "memory/drover/hand_1/cgroup.procs": "11",
        "pids/drover/hand_1/cgroup.procs": "11",
        "cpu/drover/hand_1/cgroup.procs": "11",
    }
    assert {name: (tmp_path / name).read_text() for name in wanted} == wanted


def test_group_that_could_not_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ControlGroups.find("drover", version_one(tmp_path))

    def full(path: Path, _value: str) -> None:
        if path.name == "pids.max":
            raise OSError("no room")

    monkeypatch.setattr(cgroup, "_write", full)
    with pytest.raises(OSError, match="no room"):
        groups.make("hand_1", LIMITS)
    assert groups.leftovers() == ()


def test_second_version_has_one_hierarchy(tmp_path: Path) -> None:
    parents = dict.fromkeys(("memory", "pids", "cpu"), tmp_path / "drover")
    group = ControlGroups(parents, unified=True).make("hand_1", LIMITS)
    directory = tmp_path / "drover" / "hand_1"
    assert group.directories == (directory,)
    assert (directory / "memory.max").read_text() == str(1 << 30)
    assert (directory / "pids.max").read_text() == "64"
    assert (directory / "cpu.max").read_text() == "50000 100000"


def test_second_version_counts_only_what_the_parent_offers(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("hugetlb")
    (tmp_path / "drover").mkdir()
    control = tmp_path / "drover" / "cgroup.subtree_control"
    control.symlink_to("/dev/null")  # what is written is not taken
    assert not ControlGroups.find("drover", tmp_path).bounds_memory


def test_without_writable_hierarchies_there_are_no_limits(tmp_path: Path) -> None:
    assert not ControlGroups.find("drover", tmp_path / "missing").bounds_memory


def test_death_for_want_of_memory_is_seen(tmp_path: Path) -> None:
    groups = ControlGroups.find("drover", version_one(tmp_path))
    group = groups.make("hand_1", LIMITS)
    assert not group.out_of_memory()
    control = tmp_path / "memory" / "drover" / "hand_1" / "memory.oom_control"
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    assert not group.out_of_memory()
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert group.out_of_memory()


def test_groups_left_behind_are_found_with_their_members(tmp_path: Path) -> None:
    root = version_one(tmp_path)
    ControlGroups.find("drover", root).make("hand_old", LIMITS).add([11])
    left = ControlGroups.find("drover", root).leftovers()
    assert [group.members() for group in left] == [(11,)]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hierarchies whose roots cannot be written to, as an ordinary user finds them."""
    made = cgroup._made
    roots = {tmp_path, *(tmp_path / name for name in ("memory", "pids", "cpu"))}
    monkeypatch.setattr(cgroup, "_made", lambda path: path.parent not in roots and made(path))
    return tmp_path


def test_group_that_the_process_was_given_is_used_where_the_root_is_not(closed: Path) -> None:
    root = version_one(closed)
    for controller in ("memory", "pids"):
        (root / controller / "given").mkdir()
    own = closed / "own"
    own.write_text("9:name=systemd:/x\n4:memory:/given\n3:pids:/given\n1:cpu,cpuacct:/\n0::/\n")
    groups = ControlGroups.find("drover", root, own)
    assert groups.controllers == {"memory", "pids"}
    groups.make("hand_1", LIMITS)
    assert (root / "memory" / "given" / "drover" / "hand_1" / "memory.limit_in_bytes").exists()


def test_process_leaves_the_group_that_is_to_have_others_below(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (closed / "cgroup.controllers").write_text("memory pids cpu")
    given = closed / "given"
    given.mkdir()
    own = closed / "own"
    own.write_text("0::/given\n")
    offered = {"memory": given / "drover"}
    monkeypatch.setattr(cgroup, "_offered", lambda _parent: offered)
    groups = ControlGroups.find("drover", closed, own)
    assert groups.controllers == {"memory"}
    assert (given / "drover-service" / "cgroup.procs").read_text() == str(os.getpid())
    # Where others are in it too, it has no controllers for those below: all is as it was.
    offered.clear()
    assert not ControlGroups.find("drover", closed, own).bounds_memory
    assert (given / "cgroup.procs").read_text() == str(os.getpid())
