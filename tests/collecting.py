"""What every process of a run would do before its first test, done once or cheaply.

The processes of a run collect the same tests in the same order and at the same time, so that none
of them would find what another has compiled.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from _pytest.assertion import rewrite

if TYPE_CHECKING:
    import pytest

TESTS = Path(__file__).parent


def compile_share(config: pytest.Config) -> None:
    """Compiles this process's share of the tests' files, for all processes.

    Nothing is done where bytecode is not kept, or where there is one process. Whatever is not
    compiled in time is compiled by whoever imports it, as ever.
    """
    process = getattr(config, "workerinput", None)
    if process is None or sys.dont_write_bytecode:
        return
    number, count = int(process["workerid"].removeprefix("gw")), process["workercount"]
    for path in sorted(TESTS.rglob("test_*.py"))[number::count]:
        _compiled(path, config)


def _compiled(path: Path, config: pytest.Config) -> None:
    """As pytest's own importer does it, without running it."""
    kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, kept) is None and rewrite.try_makedirs(kept.parent):
        source_hash, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, kept)


@contextmanager
def without_garbage() -> Iterator[None]:
    """Next to nothing that is imported or collected is garbage: it is not searched meanwhile."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
