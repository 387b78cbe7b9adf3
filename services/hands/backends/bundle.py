"""Compiles the agent into one file, for the interpreter that runs this: 3.9 or newer.

    python3 -I -S bundle.py DIRECTORY MAIN COMPILED

A session waits for the agent, and to find, read and link a dozen modules takes as long as to run
them. The file has the interpreter's magic number and then, marshalled, the name, the path and the
code of each module, in an order in which they can be run. The program MAIN, too, is compiled, to
the file COMPILED.
"""

from __future__ import annotations
import __future__

import compileall
import marshal
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType
from typing import Final

FILE: Final = "agent.bin"
PACKAGE: Final = "services.hands.runner"
MODULES: Final = (
    *("limits", "failure", "codec", "frames", "output", "paths", "files", "shell", "forwarder"),
    "agent",
)
"""What else the agent needs it imports when it does, from the package's own directory."""
_IMPORT: Final = "from __future__ import annotations\n"
_NEVER_STALE: Final = bytes(12)
"""What follows the magic number of a .pyc: flags, and what says of which source it was made."""


def bundle(directory: Path) -> bytes:
    """The file's content. `directory` has the package below it."""
    parts = PACKAGE.split(".")
    names = [".".join(parts[: count + 1]) for count in range(len(parts))]
    names += [f"{PACKAGE}.{module}" for module in MODULES]
    found = []
    for name in names:
        path = directory.joinpath(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        found.append((name, str(file.relative_to(directory)), _code(file)))
    return MAGIC_NUMBER + marshal.dumps(tuple(found))


def compiled(file: Path) -> bytes:
    """A program as the interpreter runs it without parsing it: what a .pyc has."""
    return MAGIC_NUMBER + _NEVER_STALE + marshal.dumps(_code(file))


def _code(file: Path) -> CodeType:
    source = file.read_text(encoding="utf-8") if file.exists() else ""
    code: CodeType = compile(
        source.replace(_IMPORT, "\n", 1),  # the compiler is told so below
        str(file),
        "exec",
        flags=__future__.annotations.compiler_flag,
        dont_inherit=True,
        optimize=2,
    )
    return code


if __name__ == "__main__":
    place = Path(sys.argv[1])
    compileall.compile_dir(place, quiet=2)
    (place / FILE).write_bytes(bundle(place))
    (place / sys.argv[3]).write_bytes(compiled(place / sys.argv[2]))
