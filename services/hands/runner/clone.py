"""Clones a repository into the workspace: all of it, as it was asked for, or nothing.

Run in a child of its own, by whose process group everything ends that is started here.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from services.hands.runner.failure import ToolFailure, ignoring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

THERE, CLONED = "there", "cloned"
_TAIL = 4096
_READ = 65536


def clone(
    *, url: str, directory: str, branch: str, commit: str, environment: dict[str, str]
) -> dict[str, Any]:
    """Clones and checks out, unless something is there already.

    Raises `ToolFailure`: a line with what failed, `clone` or `checkout`, and then git's words.
    """
    with ignoring(OSError):
        os.rmdir(directory)  # noqa: PTH106  # an empty one is none
    if os.path.lexists(directory):
        return {"text": THERE}
    parent, _, name = directory.rpartition("/")
    place = f"{parent}/.{name}.cloning"
    os.makedirs(parent, exist_ok=True)  # noqa: PTH103
    _remove(place)
    environment = {**environment, "GIT_TERMINAL_PROMPT": "0"}
    try:
        _git("clone", environment, "clone", "--quiet", "--no-checkout", "--", url, place)
        _check_out(place, branch, commit, environment)
        os.rename(place, directory)  # noqa: PTH104
    finally:
        _remove(place)
    return {"text": CLONED}


def _check_out(place: str, branch: str, commit: str, environment: dict[str, str]) -> None:
    here = ("-C", place)
    if commit:
        with ignoring(ToolFailure):  # most are there already, and not every host gives them singly
            if not _has(place, commit, environment):
                _git("checkout", environment, *here, "fetch", "--quiet", "origin", commit)
        _git("checkout", environment, *here, "checkout", "--quiet", "--detach", commit, "--")
    elif branch:
        source = f"refs/remotes/origin/{branch}"
        _git("checkout", environment, *here, "checkout", "--quiet", "-B", branch, "--track", source)
    elif _has(place, "HEAD", environment):  # an empty repository has nothing to check out
        _git("checkout", environment, *here, "checkout", "--quiet")


def _has(place: str, revision: str, environment: dict[str, str]) -> bool:
    command = ("git", "-C", place, "rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}")
    null = subprocess.DEVNULL
    ran = subprocess.run(  # noqa: S603
        command, env=environment, stdin=null, stdout=null, stderr=null, check=False
    )
    return ran.returncode == 0


def _git(stage: str, environment: dict[str, str], *arguments: str) -> None:
    """Runs git. Raises `ToolFailure`, with the end of what it said."""
    tail = b""
    try:
        with subprocess.Popen(  # noqa: S603
            ("git", *arguments),  # noqa: S607
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as program:
            assert program.stderr is not None  # noqa: S101  # a pipe was asked for
            while data := os.read(program.stderr.fileno(), _READ):
                tail = (tail + data)[-_TAIL:]
    except FileNotFoundError:
        raise ToolFailure(f"{stage}\nthe sandbox has no git") from None
    if program.returncode:
        text = tail.decode("utf-8", "replace").strip()
        raise ToolFailure(f"{stage}\n{text or f'git ended with {program.returncode}'}")


def _remove(place: str) -> None:
    with ignoring(OSError):
        if os.path.islink(place):  # noqa: PTH114
            os.unlink(place)  # noqa: PTH108
        elif os.path.lexists(place):
            shutil.rmtree(place)
