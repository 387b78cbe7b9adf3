"""The two commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.errors import told_errors
from cli.options import DEFAULT_DATA, Data

Keys = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Directory for the keys of stored credentials and the installation's secrets. "
        "Without it they are left out.",
    ),
]


def backup(
    to: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory for it.")],
    *,
    keys: Keys = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Backs up databases, files and workspaces, while everything runs.

    Databases that the settings name are dumped with PostgreSQL's own programs. Keep what --keys
    writes apart from the rest: together they open every stored credential.
    """
    from cli.backup.taking import take

    with told_errors():
        take(data, to, keys)


def restore(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The back-up.")],
    *,
    keys: Keys = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Restores a back-up into an empty data directory, and empty databases. All of it, or nothing.

    Nothing may run there. Afterwards `drover migrate`, and start.
    """
    from cli.backup.restoring import put_back

    with told_errors():
        put_back(source, data, keys)
