"""A service in a fork on a host that is odd: its clock, its network, or its release is another.

Its arguments are the service's module, and the network namespace's name if it has one.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from pathlib import Path
from typing import Final

SKEW: Final = "DROVER_TEST_SKEW"
RELEASE: Final = "DROVER_TEST_RELEASE"
"""The tree that the service is run from, by an interpreter of its own."""
ODD: Final = {SKEW, RELEASE}
_NAMESPACES: Final = Path("/run/netns")
_CLONE_NEWNET: Final = 0x40000000


def main() -> None:
    """Makes the host odd and runs the service."""
    module, *networks = sys.argv[1:]
    for network in networks:
        _enter(network)
    if tree := os.environ.pop(RELEASE, ""):
        os.chdir(tree)
        os.environ["PYTHONPATH"] = os.pathsep.join((tree, f"{tree}/proto/gen"))
        os.execv(sys.executable, [sys.executable, "-m", module])  # noqa: S606
    if SKEW in os.environ:
        importlib.import_module("tests.doubles.skewed")
    sys.argv = [module]
    importlib.import_module(module).main()


def _enter(network: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with (_NAMESPACES / network).open() as entrance:
        if libc.setns(entrance.fileno(), _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), network)
