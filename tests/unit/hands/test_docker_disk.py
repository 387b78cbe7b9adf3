"""Which disk the engine writes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.hands.backends.docker.container import Places
from services.hands.backends.docker.disk import free, of_engine

CONTAINERD = [["driver-type", "io.containerd.snapshotter.v1"]]


def info(root: Path | str, driver: Any = None) -> dict[str, Any]:
    return {"DockerRootDir": str(root), "DriverStatus": driver}


def test_engine_that_has_its_data_here_writes_to_their_disk(tmp_path: Path) -> None:
    driver = [["Backing Filesystem", "extfs"], ["Supports d_type", "true"]]
    assert of_engine(info(tmp_path, driver), Places()) == tmp_path


def test_hands_in_a_container_have_a_volume_on_the_engines_disk() -> None:
    here = Path("/data")
    for there, found in (("/engine/volumes/data/_data", here), ("/mnt/nfs", None)):
        assert of_engine(info("/engine"), Places(here, Path(there))) == found


@pytest.mark.parametrize("told", [{}, info(""), info("/nowhere/engine"), info("/", CONTAINERD)])
def test_disk_that_cannot_be_told_is_none(told: dict[str, Any]) -> None:
    assert of_engine(told, Places()) is None
    assert free(None) is None


def test_directory_that_is_gone_tells_nothing_of_its_disk(tmp_path: Path) -> None:
    assert free(tmp_path)
    assert free(tmp_path / "gone") is None
