"""The sandboxes again as a user without privileges, when the suite itself runs as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
USER = 64001
# Binds Python, its packages and the repository to where any user may go: they may all be in root's
# own directory. In a mount namespace of its own, so that nothing of it is left.
ENTER = f"""
set -e
mount --bind "$2" "$1/base"; mount --bind "$3" "$1/site"; mount --bind "$4" "$1/repository"
cd "$1/repository"
shift 4
exec setpriv --reuid {USER} --regid {USER} --clear-groups --inh-caps=-all -- "$@"
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may enter, unlike pytest's."""
    place = Path(tempfile.mkdtemp(prefix="drover-user-"))
    place.chmod(0o755)
    for part in ("base", "site", "repository", "work"):
        (place / part).mkdir()
    os.chown(place / "work", USER, USER)
    yield place
    shutil.rmtree(place)


def _files(patterns: Iterable[str]) -> list[str]:
    found = [path for pattern in patterns for path in sorted(REPOSITORY.glob(pattern))]
    return [str(path.relative_to(REPOSITORY)) for path in found]


SUITES = (
    *("tests/contract/hands/test_backend.py", "tests/contract/hands/test_tools.py"),
    "tests/contract/hands/test_forked_agents.py",
    "tests/adversarial/sandbox/test_s0[145789]_*.py",
    *("tests/adversarial/sandbox/test_s02_file*.py", "tests/adversarial/sandbox/test_s1[03]_*.py"),
    *("tests/adversarial/sandbox/test_s06_*.py", "tests/fault/test_f7_*.py"),
)


@pytest.mark.skipif(os.geteuid() != 0, reason="the suite itself runs as an ordinary user")
@pytest.mark.timeout(4 * 120)
def test_suites_pass_as_an_ordinary_user(place: Path) -> None:
    program = Path(os.path.realpath(sys.executable)).relative_to(sys.base_prefix)
    repository, site, work = place / "repository", place / "site", place / "work"
    run = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"),
            *(place, sys.base_prefix, sysconfig.get_paths()["purelib"], REPOSITORY),
            *(place / "base" / program, "-P", "-m", "pytest", "-q"),
            *_files(SUITES),
            # Engines need root, and a cluster does not care.
            *("-k", "not docker and not runsc and not kubernetes"),
            *("-p", "no:cacheprovider", f"--basetemp={work / 'pytest'}"),
            *("-p", "no:schemathesis", "-p", "no:hypothesispytest"),
        ],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(work),
            "LD_LIBRARY_PATH": str(place / "base" / "lib"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{repository}:{repository / 'proto' / 'gen'}:{site}",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * 110,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert "passed" in run.stdout
