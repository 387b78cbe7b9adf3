"""Puts Drover beside the packages that it needs, compiled, as an installed distribution.

    install.py SOURCE

A build of a wheel would need tools that are in no image. Plug-ins find Drover's version, and
Drover theirs, by what packaging calls the metadata of a distribution.
"""

from __future__ import annotations

import compileall
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path


def install(source: Path, place: Path) -> None:
    """Copies the packages that pyproject.toml names, and writes the metadata."""
    described = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    for package in described["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        origin = source / package
        shutil.copytree(origin, place / origin.name)
        compileall.compile_dir(place / origin.name, quiet=1)
    project = described["project"]
    metadata = place / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    (metadata / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, target in project["scripts"].items():
        module, _, function = target.partition(":")
        script = Path(sysconfig.get_path("scripts"), name)
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(
            f"#!{sys.executable}\nfrom {module} import {function}\n\n{function}()\n",
            encoding="utf-8",
        )
        script.chmod(0o755)


if __name__ == "__main__":
    install(Path(sys.argv[1]), Path(sysconfig.get_path("purelib")))
