"""A few services by themselves, to be broken: those of the production shape that a test needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.doubles.messages_api import running
from tests.e2e.replicas import Replicas, _is_ready, _listens, migrate

NOWHERE = "127.0.0.1:9"
"""The address of a part that the test does without."""


@contextmanager
def running_fleet(
    data: Path,
    database_url: str | None,
    *names: str,
    prepare: Callable[[Replicas], None] = lambda _fleet: None,
    **environment: str,
) -> Iterator[Replicas]:
    """Runs the named processes for the length of the block; without a URL they use SQLite.

    `prepare` sees them before they are started, to change what single ones are told.
    """
    if database_url is not None:
        migrate(database_url)
    with running() as model:
        fleet = Replicas.planned(data, database_url or "", model, environment)
        _leave(fleet, names)
        prepare(fleet)
        try:
            fleet.start()
            for name in names:
                fleet.wait_for(lambda name=name: serves(fleet, name), f"{name} to serve")
            yield fleet
        finally:
            for process in fleet.processes.values():
                if process.alive:
                    fleet.resume(process.name)
            fleet.stop()


def serves(fleet: Replicas, name: str) -> bool:
    """Whether a process takes calls."""
    process = fleet.processes[name]
    assert process.alive, f"{name} has died:\n{process.log.read_text()[-4000:]}"
    if process.kind == "gateway":
        return _is_ready(f"http://{process.address}/healthz")
    return _listens(process.address)


def _leave(fleet: Replicas, names: tuple[str, ...]) -> None:
    """Takes away every part but the named ones, in the others' settings too."""
    addresses = {name: process.address for name, process in fleet.processes.items()}
    fleet.processes = {name: fleet.processes[name] for name in names}
    for process in fleet.processes.values():
        for part in ("session", "brain"):
            variable = f"DROVER_{part.upper()}_ADDRESS" + ("ES" if part == "brain" else "")
            left = [addresses[name] for name in names if name.startswith(part)]
            # A gateway wants to be told of brains; a session service would look for them.
            missing = NOWHERE if process.kind == "gateway" else ""
            process.environment[variable] = ",".join(left) or missing
        if not fleet.database_url:
            process.environment.pop("DROVER_DATABASE_URL", None)
