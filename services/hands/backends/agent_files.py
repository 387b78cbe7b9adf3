"""The agent's files, laid out as every sandbox sees them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from services.hands import runner
from services.hands.backends import bundle
from services.hands.runner.frames import READY

MAIN_FILE: Final = "main.py"
"""What any Python starts the agent with."""
COMPILED_FILE: Final = "main"
"""The same, compiled for the interpreter that was named, where that could be done: Python tells by
the first bytes. The first thing that a parser is given costs most of a millisecond."""
FETCH_FILE: Final = "fetch.cjs"
"""For Node, which is told of it by a variable of the environment."""
FILTER_FILE: Final = "filter"
"""A system call filter, where the agent's own first process is to install it."""
# It says that it is up before it imports anything: the host has something to do meanwhile. Then it
# runs what is bundled for this interpreter, and imports what is not.
_MAIN: Final = f"""\
import posix
import sys

here = __file__.rpartition("/")[0]
sys.path.append(here)
if posix.getpid() == 1:
    from services.hands.runner.first import divide

    divide(here + "/{FILTER_FILE}")
posix.write(1, {READY!r})

from _frozen_importlib_external import MAGIC_NUMBER

try:
    with open(here + "/{bundle.FILE}", "rb") as file:
        bundled = file.read()
except OSError:
    bundled = b""
if bundled.startswith(MAGIC_NUMBER):
    from marshal import loads

    for name, path, code in loads(bundled[len(MAGIC_NUMBER):]):
        module = sys.modules[name] = type(sys)(name)
        module.__file__ = here + "/" + path
        if path.endswith("/__init__.py"):
            module.__path__ = [module.__file__.rpartition("/")[0]]
        exec(code, module.__dict__)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)

from services.hands.runner.agent import main

main()
"""
_ZYGOTE: Final = """\
import sys

sys.path.append({directory!r})

from services.hands.runner.zygote import serve

serve({call_filter!r}, {place!r})
"""
_COMPILE_SECONDS: Final = 60.0


def zygote(directory: Path, call_filter: bytes | None, place: str) -> bytes:
    """The program that agents are forked from, for Python's standard input.

    `directory` has been laid out, and is found at `place` in a sandbox. It is asked over a socket
    that is its standard output.
    """
    return _ZYGOTE.format(
        directory=str(directory), call_filter=call_filter or b"", place=place
    ).encode()


def lay_out(directory: Path, python: str, call_filter: bytes | None = None) -> None:
    """Writes the agent's package and its main file to `directory`, anew.

    Compiled ahead by the interpreter that will run it, where that is known: a sandbox cannot keep
    what it compiles. `call_filter` is for the agent's own first process to install.
    """
    shutil.rmtree(directory, ignore_errors=True)
    package = directory.joinpath(*runner.__name__.split("."))
    package.mkdir(parents=True)
    for source in sorted(Path(runner.__path__[0]).glob("*.py")):
        shutil.copyfile(source, package / source.name)
    shutil.copyfile(Path(runner.__path__[0]) / FETCH_FILE, directory / FETCH_FILE)
    for name in (MAIN_FILE, COMPILED_FILE):
        (directory / name).write_text(_MAIN, encoding="utf-8")
    if call_filter is not None:
        (directory / FILTER_FILE).write_bytes(call_filter)
    if python:
        subprocess.run(  # noqa: S603  # our own file names
            [python, "-I", "-S", bundle.__file__, str(directory), MAIN_FILE, COMPILED_FILE],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMPILE_SECONDS,
            check=False,  # the sources do as well
        )
    for path in (directory, *directory.rglob("*")):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)  # noqa: PTH101  # read-only inside
