"""What the services' image is built on where no registry is reached: this machine's own packages.

It is the sandboxes' image and, as one more layer, the very packages that the tests run with. Who
builds on it fetches nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Final

from tests.doubles.docker_engine import IMAGE, Engine

ROOT: Final = Path(__file__).parents[2]
BASE: Final = "drover/test-base"
_LOCK: Final = ROOT / "deploy" / "images" / "requirements.lock"
_PLACE: Final = "usr/local/lib/python3.11/dist-packages"
_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
_NOBODY: Final = 65534
_NEVER_USED: Final = {"boto3", "botocore", "kubernetes", "pygments"}
"""Large, and no test asks for them: of these the image has what says that they are there."""


def build(engine: Engine) -> None:
    """Makes the image, in some seconds."""
    config = json.loads(engine.docker("image", "inspect", IMAGE))[0]
    with tempfile.TemporaryFile() as layer:
        with tarfile.open(fileobj=layer, mode="w") as tar:
            # Some installers list what was compiled, and files that are another's too.
            for name, path in {name: path for path, name in _files()}.items():
                tar.add(path, name, recursive=False, filter=_owned_by_root)
            for entry in _postgres_directories():
                tar.addfile(entry)
        layer.seek(0)
        digest = hashlib.file_digest(layer, "sha256").hexdigest()
        layers = [*config["RootFS"]["Layers"], f"sha256:{digest}"]
        made = {key.lower(): config[key] for key in ("Architecture", "Os", "Config")}
        made |= {"rootfs": {"type": "layers", "diff_ids": layers}}
        _load(engine, made, layer)


def _load(engine: Engine, config: dict[str, Any], layer: IO[bytes]) -> None:
    """Gives the engine an image of which it has all but the last layer."""
    names = [f"{number}.tar" for number in range(len(config["rootfs"]["diff_ids"]))]
    manifest = [{"Config": "config.json", "RepoTags": [f"{BASE}:latest"], "Layers": names}]
    with subprocess.Popen(
        ["docker", "load", "--quiet"],
        env=engine.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as loading:
        assert loading.stdin is not None
        with tarfile.open(fileobj=loading.stdin, mode="w|") as tar:
            for name, content in (("config.json", config), ("manifest.json", manifest)):
                text = json.dumps(content).encode()
                tar.addfile(_entry(name, len(text)), io.BytesIO(text))
            size = layer.seek(0, io.SEEK_END)
            layer.seek(0)
            tar.addfile(_entry(names[-1], size), layer)
        loading.stdin.close()
        assert loading.wait() == 0


def _files() -> Iterator[tuple[Path, str]]:
    """The files of all that the lock names and of pip, as they are installed here."""
    names = re.findall(r"^([a-z0-9.-]+)==", _LOCK.read_text(), flags=re.MULTILINE)
    for name in (*names, "pip"):
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of another platform
            continue
        below = Path(str(found.locate_file("")))
        for file in found.files or ():
            path = Path(str(found.locate_file(file)))
            if ".." in file.parts or not path.is_file():
                continue
            if name not in _NEVER_USED or file.parts[0].endswith(".dist-info"):
                yield path, f"{_PLACE}/{file}"
                yield from ((one, f"{_PLACE}/{one.relative_to(below)}") for one in _compiled(path))
    library = Path("/", _LIBRARIES, "libstdc++.so.6")  # which wheels take for granted
    for path in (library, library.resolve()):
        yield path, f"{_LIBRARIES}/{path.name}"


def _compiled(path: Path) -> Iterator[Path]:
    """Not every installer says of them that they are there."""
    if path.suffix == ".py":
        compiled = path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc"
        yield from [compiled] if compiled.exists() else []


def _postgres_directories() -> Iterator[tarfile.TarInfo]:
    """As the official image has them: what is mounted there takes over their owner and mode."""
    for name, mode in (("var/lib/postgresql/data", 0o700), ("var/run/postgresql", 0o1777)):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, _NOBODY, _NOBODY
        yield entry


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
