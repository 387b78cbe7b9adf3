"""Compiles the agent into one file, for the interpreter that runs this: 3.9 or newer.

    python3 -I -S bundle.py DIRECTORY

A session waits for the agent, and to find, read and link a dozen modules takes as long as to run
them. The file has the interpreter's magic number and then, marshalled, the name, the path and the
code of each module, in an order in which they can be run.
"""

from __future__ import annotations
import __future__

import compileall
import marshal
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Final

FILE: Final = "agent.bin"
PACKAGE: Final = "services.hands.runner"
MODULES: Final = (
    *("limits", "failure", "codec", "frames", "output", "paths", "files", "shell", "forwarder"),
    "agent",
)
"""What else the agent needs it imports when it does, from the package's own directory."""
_IMPORT: Final = "from __future__ import annotations\n"


def bundle(directory: Path) -> bytes:
    """The file's content. `directory` has the package below it."""
    parts = PACKAGE.split(".")
    names = [".".join(parts[: count + 1]) for count in range(len(parts))]
    names += [f"{PACKAGE}.{module}" for module in MODULES]
    found = []
    for name in names:
        path = directory.joinpath(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        source = file.read_text(encoding="utf-8") if file.exists() else ""
        code = compile(
            source.replace(_IMPORT, "\n", 1),  # the compiler is told so below
            str(file),
            "exec",
            flags=__future__.annotations.compiler_flag,
            dont_inherit=True,
            optimize=2,
        )
        found.append((name, str(file.relative_to(directory)), code))
    return MAGIC_NUMBER + marshal.dumps(tuple(found))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    compileall.compile_dir(place, quiet=2)
    (place / FILE).write_bytes(bundle(place))
