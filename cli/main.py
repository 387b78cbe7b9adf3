"""The `drover` command. Commands import what they need when they run: `--help` stays quick."""

from __future__ import annotations

import enum
import signal
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from cli import certs, keys, skills, vault
from cli.backup.commands import backup, restore
from cli.errors import fail, told_errors
from cli.options import DEFAULT_DATA, Data, Key, TlsDir, Url

app = typer.Typer(
    name="drover",
    help="An open, self-hosted managed-agent platform.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(certs.app, name="certs")
app.command()(backup)
app.command()(restore)
app.add_typer(keys.app, name="keys")
app.add_typer(skills.app, name="skills")
app.add_typer(vault.app, name="vault")


Port = Annotated[int, typer.Option(min=0, max=65535, help="Port of the API; 0 takes a free one.")]
SessionAddress = Annotated[
    str | None,
    typer.Option(
        envvar="DROVER_SESSION_ADDRESS",
        metavar="HOST:PORT",
        help="The session service; default the one of the stack that runs in DATA.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        envvar="DROVER_TOKEN_FILE",
        metavar="FILE",
        help="The installation's secret; default the one in DATA/run/token.",
    ),
]
Every = Annotated[bool, typer.Option("--all", help="Show every event, progress included.")]


class Stored(enum.Enum):
    """The services that have a database."""

    REGISTRY = "registry"
    SESSION = "session"
    VAULT_PROXY = "vault_proxy"
    HANDS = "hands"


DEFAULT_MODEL = "claude-opus-5-5"


@app.command()
def up(
    *,
    data: Data = DEFAULT_DATA,
    host: Annotated[str, typer.Option(help="Address that the API listens on.")] = "127.0.0.1",
    port: Port = 8080,
    brains: Annotated[int, typer.Option(min=1, max=64, help="Number of brain processes.")] = 2,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the ready line and errors only.")
    ] = False,
    attended: Annotated[
        bool, typer.Option("--attended", hidden=True, help="End with the standard input too.")
    ] = False,
) -> None:
    """Runs the whole stack in the foreground, until Ctrl-C.

    Prints one `ready` line with the URL and the API key. Each service is a process of its own and
    is started again when it dies; logs are in DATA/logs. With ANTHROPIC_API_KEY or
    ANTHROPIC_BASE_URL set agents use that model, without them a scripted, offline one.
    DROVER_API_KEY sets the client's key.
    """
    from chassis.errors import CannotStartError
    from cli.up import run_stack

    try:
        run_stack(data, host=host, port=port, brains=brains, quiet=quiet, attended=attended)
    except CannotStartError as error:
        fail(str(error))


@app.command()
def run(
    task: Annotated[str, typer.Argument(help="What the agent is to do; - reads it from stdin.")],
    *,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
    agent: Annotated[
        str | None, typer.Option(help="Id of the agent that does it; default one of all tools.")
    ] = None,
    environment: Annotated[str | None, typer.Option(help="Id of its environment.")] = None,
    model: Annotated[str, typer.Option(help="Model of the default agent.")] = DEFAULT_MODEL,
    every: Every = False,
) -> None:
    """Runs a task on a running stack, in a new session, and streams it.

    Ctrl-C interrupts the agent. The exit code tells why the session stopped: 0 end_turn,
    3 requires_action, 4 retries_exhausted, 5 budget_reached, 6 refusal, 7 terminated,
    130 interrupted; 1 an error.
    """
    from cli.run import run_task
    from cli.target import resolve

    with told_errors():
        text = said(sys.stdin.read() if task == "-" else task)
        client = resolve(url, api_key, data).client()
        ending = run_task(
            client, text, agent=agent, environment=environment, model=model, every=every
        )
        raise typer.Exit(ending.exit_code)


@app.command()
def tail(
    session: Annotated[str, typer.Argument(help="Id of the session.")],
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until the session ends.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Prints a session's events."""
    from cli.tail import tail_session
    from cli.target import resolve

    with told_errors():
        if not session:
            fail("an empty id names no session")
        tail_session(resolve(url, api_key, data).client(), session, follow=follow, as_json=json)


@app.command()
def fork(
    session: Annotated[str, typer.Argument(help="Id of the session.")],
    *,
    event: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The last event that the new session has; default the log's last."
        ),
    ] = None,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Makes a new session from a session's log up to an event, and prints its id.

    Calls that are open there get an error result; the new session is idle. What is in the
    sandbox of the old one stays with it.
    """
    from cli.fork import fork_session
    from cli.target import resolve

    with told_errors():
        if not session:
            fail("an empty id names no session")
        print(fork_session(resolve(url, api_key, data).client(), session, event))


@app.command("export")
def export_(
    session: Annotated[str, typer.Argument(help="Id of the session.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; default standard output."),
    ] = None,
    data: Data = DEFAULT_DATA,
    session_address: SessionAddress = None,
    token_file: TokenFile = None,
    tls_dir: TlsDir = None,
) -> None:
    """Writes a session as JSON Lines: the session, its log, what waits in its inbox.

    For operators: it takes the installation's secret, and says what the API never shows, such as
    the model's thinking. Sandboxes and their files are not part of it.
    """
    with told_errors():
        from cli.transfer.exporting import export_session
        from cli.transfer.service import resolve

        if not session:
            fail("an empty id names no session")
        target = resolve(session_address, token_file, data, tls_dir=tls_dir)
        export_session(target, session, output)


@app.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="What was exported; - reads it from stdin.")
    ] = Path("-"),
    *,
    data: Data = DEFAULT_DATA,
    session_address: SessionAddress = None,
    token_file: TokenFile = None,
    tls_dir: TlsDir = None,
) -> None:
    """Reads a session that was exported, under its own ids, and prints its id.

    All of it, or nothing. A session that ran when it was exported is refused, and so is one of an
    id that is there already.
    """
    with told_errors():
        from cli.transfer.importing import import_session
        from cli.transfer.service import resolve

        target = resolve(session_address, token_file, data, tls_dir=tls_dir)
        print(import_session(target, None if file == Path("-") else file))


@app.command()
def demo(
    task: Annotated[
        str | None, typer.Option(help="Run this instead; default a report on examples/orders.csv.")
    ] = None,
    model: Annotated[str, typer.Option(help="Model of the agent.")] = DEFAULT_MODEL,
) -> None:
    """Starts a stack on a free port, runs one session on real input, shows all of it, and ends."""
    from cli.demo import run_demo

    with told_errors():
        raise typer.Exit(run_demo(None if task is None else said(task), model=model))


@app.command()
def doctor(
    data: Data = DEFAULT_DATA,
    port: Port = 8080,
    url: Annotated[
        str | None,
        typer.Option(help="Examine the installation at this URL instead, as its clients find it."),
    ] = None,
    api_key: Key = None,
) -> None:
    """Says what this machine has, and what to do about what it lacks.

    The exit code is 0 if Drover can run here; with --url, if clients can use what runs there.
    """
    from cli.doctor.report import examine, examine_remote, show

    if url is None:
        able = show(examine(data, port), "Drover can run here", "Drover cannot run here yet")
    else:
        findings = examine_remote(url, api_key, data)
        able = show(findings, "clients can use it", "clients cannot use it yet")
    raise typer.Exit(0 if able else 1)


@app.command()
def ps(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Every two seconds, until Ctrl-C.")
    ] = False,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Says what runs: every process, and the sessions that work, with what each waits for.

    The sessions are those of the key's workspace; processes are shown to a key of an admin.
    """
    from cli.ps import show_running
    from cli.target import resolve

    with told_errors():
        client = resolve(url, api_key, data).client()
        show_running(client, as_json=as_json, watch=watch)


@app.command()
def migrate(
    *,
    service: Annotated[
        list[Stored] | None,
        typer.Option(help="Only the database of this service; may be repeated. Default: all."),
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Brings the services' databases to what this release needs.

    `drover up` does it by itself. Services that run by themselves on PostgreSQL need it once before
    a new release of them starts; it may run beside those of the release before. Nothing happens
    to a database that is up to date.
    """
    from chassis.errors import CannotStartError
    from cli.migrate import migrate_services

    try:
        migrate_services(dict.fromkeys(one.value for one in service or Stored), data)
    except CannotStartError as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command()
def config() -> None:
    """Lists every setting: its value or else its default, and who reads it. Secrets are masked."""
    from cli.settings import show_settings

    show_settings()


@app.command()
def probe(
    address: Annotated[
        str | None, typer.Argument(help="host:port or http://…; default DROVER_LISTEN.")
    ] = None,
) -> None:
    """Asks one process whether it serves: for health checks, as `python -m cli.probe` does.

    DROVER_TLS_DIR names the certificate that it is asked with, which is its own.
    """
    from cli.probe import asked

    if why := asked([address] if address else []):
        fail(why)


@app.command()
def models(
    ids: Annotated[list[str] | None, typer.Argument(help="Only these, however spelled.")] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option(envvar="DROVER_MODELS_FILE", help="A list of your own, over the shipped one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="In the shape of such a file.")] = False,
) -> None:
    """Lists what is known of models: context windows, abilities, and the prices of budgets."""
    from cli.models import show_models

    with told_errors():
        show_models(file, ids or (), as_json=as_json)


@app.command()
def version() -> None:
    """Prints Drover's version."""
    print_version(wanted=True)


@app.callback()
def options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print Drover's version and exit.",
            is_eager=True,
            callback=lambda wanted: print_version(wanted=wanted),
        ),
    ] = False,
) -> None:
    """An open, self-hosted managed-agent platform."""


def print_version(*, wanted: bool) -> None:
    """Prints the version of the package and ends the command, if that is wanted."""
    if not wanted:
        return
    try:
        print(metadata.version("drover"))
    except metadata.PackageNotFoundError:
        print("0.0+uninstalled")  # run from a checkout
    raise typer.Exit


def said(task: str) -> str:
    """A task that can be sent. Ends the command if there is nothing to do, or no text."""
    if not task.strip():
        fail("the task is empty: say what the agent is to do")
    try:
        task.encode()
    except UnicodeEncodeError:
        fail("the task is not UTF-8 text")
    return task


def main() -> None:
    """Entry point of the console script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until a command has something to put in order, Ctrl-C ends it without further ado: an
        # exception out of the middle of an import says nothing to anybody.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    app()


if __name__ == "__main__":
    main()
