"""The release before this one, out of the clone's own history."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.stack import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_UNTAGGED: Final = "480fcd0e933f4ba70ea6095296c203470c03225d"
"""What counts as the release before this one for as long as none was tagged."""
_WHAT: Final = ("catalogue", "chassis", "gateway", "proto/gen", "services", "storage")


def unpacked(place: Path) -> Path:
    """The services' tree of the last release, in a new directory. Skips without any history."""
    tagged = _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    revision = tagged.stdout.decode().strip() or _UNTAGGED
    archive = _git("archive", revision, *_WHAT)
    if archive.returncode:
        pytest.skip(f"this clone has no history with the release before: {revision}")
    subprocess.run(["tar", "-x", "-C", place], input=archive.stdout, check=True)
    return place


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    git = ["git", "-c", "safe.directory=*", "-C", ROOT]  # the clone may be another user's
    return subprocess.run([*git, *arguments], capture_output=True, check=False)
