"""What may stand in an environment's lists of packages: names, with their managers' own versions.

They become arguments of the managers. So none is an option, a path, a URL, or anything else that
a manager would take from elsewhere than its index.
"""

from __future__ import annotations

import re
from typing import Final

WITHOUT: Final = frozenset({"kubernetes"})
"""The kinds of sandboxes whose packages are those of their image."""
WITH_ROOT: Final = "docker"
"""The kind of sandboxes whose image root can add to."""
NEEDS_ROOT: Final = (
    "apt needs root, which only docker has for it: take docker sandboxes (metadata drover.sandbox: "
    "docker), or install it on the machine, whose programs local sandboxes have, or in the image "
    "of kubernetes sandboxes"
)


def of_image(kind: str) -> str:
    """What is said of packages for sandboxes of a kind that has none."""
    return (
        f"{kind} sandboxes have the packages of their image: build one that has it, and name it in "
        "the environment's metadata as drover.sandbox_image"
    )


_VERSION: Final = r"[A-Za-z0-9][A-Za-z0-9.+_-]*"
_COMPARED: Final = r"(?:===|==|~=|!=|<=|>=|<|>)[A-Za-z0-9][A-Za-z0-9.*+!_-]*"
_PIP_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_NPM_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9._~-]*"
_GO_PART: Final = r"[A-Za-z0-9_~][A-Za-z0-9._~-]*"

_PATTERNS: Final = {
    "apt": (
        r"[a-z0-9][a-z0-9.+-]*[a-z0-9.+](?::[a-z0-9]+)?(?:=[A-Za-z0-9][A-Za-z0-9.+~:-]*)?",
        "curl=7.88.1",
    ),
    "cargo": (rf"[A-Za-z][A-Za-z0-9_-]*(?:@[=^~<>]{{0,2}}{_VERSION})?", "ripgrep@14.1.0"),
    "gem": (rf"[A-Za-z0-9_][A-Za-z0-9._-]*(?::{_VERSION})?", "rake:13.2.1"),
    "go": (
        rf"[a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)+(?:/{_GO_PART})*(?:@{_VERSION})?",
        "example.com/tool/cmd/tool@v1.2.3",
    ),
    "npm": (
        rf"(?:@{_NPM_NAME}/)?{_NPM_NAME}(?:@[A-Za-z0-9^~<>=*][A-Za-z0-9^~<>=.*+_-]*)?",
        "typescript@5.4.0",
    ),
    "pip": (
        rf"{_PIP_NAME}(?:\[{_PIP_NAME}(?:,{_PIP_NAME})*\])?(?:{_COMPARED}(?:,{_COMPARED})*)?",
        "numpy==2.1.0",
    ),
}
_COMPILED: Final = {manager: re.compile(pattern) for manager, (pattern, _) in _PATTERNS.items()}
_SHOWN: Final = 60


def check_package(manager: str, package: str) -> None:
    """Raises `ValueError`, which says what is amiss, for what is no name of a package."""
    if _COMPILED[manager].fullmatch(package):
        return
    shown = package if len(package) <= _SHOWN else f"{package[:_SHOWN]}…"
    msg = (
        f"{shown!r} is not the name of a package in {manager}'s index, with or without a version, "
        f"such as {_PATTERNS[manager][1]}: no spaces, options, paths or URLs"
    )
    raise ValueError(msg)
