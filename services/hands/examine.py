"""Says what sandboxes protect against here, for who may not import a service (`drover doctor`).

`python -m services.hands.examine MINIMUM local`, or `MINIMUM docker HOST RUNTIME`, where MINIMUM is
as in DROVER_SANDBOX_MINIMUM. Prints a JSON list of `{"name", "lacking", "wanted"}`: what is lacking
and how to get it, empty where the protection holds, and whether the minimum asks for it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from services.hands.backends.local import LocalBackend
from services.hands.backends.port import BackendUnavailable
from services.hands.domain.protections import Protection, minimum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


async def local() -> Mapping[Protection, str]:
    """What embedded sandboxes protect against; a trial one is started.

    Raises `BackendUnavailable`.
    """
    with tempfile.TemporaryDirectory(prefix="drover-trial-") as directory:
        # Nothing is asked for here: what is found is to be told, not refused.
        backend = LocalBackend(Path(directory), frozenset())
        await backend.start()
        try:
            return await backend.examine()
        finally:
            await backend.close()


async def docker(host: str, runtime: str) -> Mapping[Protection, str]:
    """What containers of an engine protect against. Raises `BackendUnavailable`."""
    # The engine's SDK is slow to import, and most installations never need it.
    from services.hands.backends.docker import fitness  # noqa: PLC0415
    from services.hands.backends.docker.engine import Engine  # noqa: PLC0415
    from services.hands.backends.docker.settings import EngineSettings  # noqa: PLC0415

    settings = EngineSettings(host, image="", runtime=runtime)
    fitness.check_host(host)
    engine = Engine(host, threads=1, seconds=5.0)
    try:
        info, version = await engine.about()
    finally:
        await engine.close()
    fitness.check(info, version, settings)
    return fitness.held(info.get("Runtimes") or {}, settings)


def main(arguments: Sequence[str]) -> int:
    """Prints what there is to say. Fails with the reason on standard error."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        least = minimum(arguments[0])
        kind, *more = arguments[1:]
        rows = asyncio.run(docker(*more) if kind == "docker" else local())
    except (BackendUnavailable, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    told = [
        {"name": str(protection), "lacking": rows[protection], "wanted": protection in least}
        for protection in Protection
    ]
    json.dump(told, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
