"""The options of every command that talks to a stack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer


def directory(name: str) -> Path:
    """The directory of that name, there or not. Raises `typer.BadParameter`."""
    if not name:
        msg = "an empty name names no directory"
        raise typer.BadParameter(msg)
    path = Path(name)
    if path.exists() and not path.is_dir():
        msg = f"{name} is not a directory"
        raise typer.BadParameter(msg)
    return path


Data = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="DROVER_DATA_DIR",
        help="Directory of all durable data, keys and logs.",
        parser=directory,
        metavar="DIR",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="DROVER_URL", help="The stack; default the one that runs in DATA."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--api-key", envvar="DROVER_API_KEY", help="Its key; default the one in DATA/run/api_key."
    ),
]
TlsDir = Annotated[
    Path | None,
    typer.Option(
        "--tls-dir",
        envvar="DROVER_TLS_DIR",
        metavar="DIR",
        help="The operator's certificate; default the one in DATA/run/tls/operator, if any.",
    ),
]
DEFAULT_DATA: Final = Path("drover-data")
