"""The `drover` command. Commands import what they need when they run: `--help` stays quick."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    name="drover",
    help="An open, self-hosted managed-agent platform.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Data = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="DROVER_DATA_DIR",
        help="Directory of all durable data, keys and logs.",
        file_okay=False,
    ),
]
DEFAULT_DATA = Path("drover-data")


@app.command()
def up(
    data: Data = DEFAULT_DATA,
    host: Annotated[str, typer.Option(help="Address that the API listens on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the API; 0 takes a free one.")
    ] = 8080,
    brains: Annotated[int, typer.Option(min=1, max=64, help="Number of brain processes.")] = 2,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the ready line and errors only.")
    ] = False,
) -> None:
    """Runs the whole stack in the foreground, until Ctrl-C.

    Prints one `ready` line with the URL and the API key. Each service is a process of its own and
    is started again when it dies; logs are in DATA/logs. With ANTHROPIC_API_KEY or
    ANTHROPIC_BASE_URL set agents use that model, without them a scripted, offline one.
    DROVER_API_KEY sets the client's key.
    """
    from cli.up import CannotStartError, run_stack

    try:
        run_stack(data, host=host, port=port, brains=brains, quiet=quiet)
    except CannotStartError as error:
        fail(str(error))


@app.command()
def version() -> None:
    """Prints Drover's version."""
    print(metadata.version("drover"))


def fail(message: str, code: int = 1) -> None:
    """Ends the command with a message on standard error."""
    Console(stderr=True).print(
        f"drover: {message}", style="red", markup=False, highlight=False, soft_wrap=True
    )
    raise typer.Exit(code)


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
