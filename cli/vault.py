"""`drover vault`: who used which credential, and the keys that all of them are stored with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.errors import fail, told_errors
from cli.options import DEFAULT_DATA, Data, Key, TlsDir, Url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anthropic import Anthropic

app = typer.Typer(help="Stored credentials: their audit trail and keys.", no_args_is_help=True)

_BETA: Final = {"anthropic-beta": "managed-agents-2026-04-01"}
_PATH: Final = "/v1/vault_audit"
_PAGE: Final = 100


@app.command()
def audit(
    *,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only of this session.")] = None,
    vault: Annotated[str | None, typer.Option(metavar="ID", help="Only of this vault.")] = None,
    credential: Annotated[
        str | None, typer.Option(metavar="ID", help="Only of this credential.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="So many entries at most.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON Lines.")] = False,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Lists what was let out of sandboxes and what was refused, newest first, and with what.

    No entry holds a secret, nor what was sent: only where to, with which credential, and why not.
    """
    import json

    from cli.target import resolve
    from cli.terminal import Terminal

    wanted = {"session_id": session, "vault_id": vault, "credential_id": credential}
    with told_errors():
        out = Terminal()
        client = resolve(url, api_key, data).client()
        query = {name: value for name, value in wanted.items() if value}
        found = False
        for entry in _listed(client, dict(query), limit):
            found = True
            out.say(json.dumps(entry) if as_json else _line(entry))
        if not found:
            filters = " ".join(f"--{name[:-3]} {value}" for name, value in query.items())
            Terminal(stderr=True).say(f"no entries for {filters}" if filters else "no entries yet")


@app.command()
def rotate(
    *,
    new_key: Annotated[
        bool,
        typer.Option(
            "--new-key/--no-new-key",
            help="Have the key provider make a new key first. Without: wrap with its newest one.",
        ),
    ] = True,
    address: Annotated[
        str | None,
        typer.Option(
            "--vault-proxy-address",
            envvar="DROVER_VAULT_PROXY_ADDRESS",
            help="The vault proxy; default the one of the stack that runs in DATA.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="DROVER_TOKEN_FILE",
            metavar="FILE",
            help="The installation's secret; default the one in DATA/run/token.",
        ),
    ] = None,
    tls_dir: TlsDir = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Wraps the key of every stored secret anew, with the key provider's newest key.

    No secret is opened, and nothing but wrapped keys reaches a disk. Sessions go on meanwhile.
    Broken off, it goes on where it was when it is run again with --no-new-key.
    """
    with told_errors():
        from cli.rotation import rotate as run
        from cli.terminal import Terminal
        from cli.transfer.service import resolve

        target = resolve(address, token_file, data, "vault_proxy", tls_dir=tls_dir)
        run(target, Terminal(), new_key=new_key)


def _listed(client: Anthropic, query: dict[str, str], limit: int) -> Iterator[dict[str, Any]]:
    left = limit
    while True:
        params = query | {"limit": str(min(left, _PAGE))}
        answer = client.get(_PATH, cast_to=object, options={"headers": _BETA, "params": params})
        if not isinstance(answer, dict):
            fail("the answer is not that of Drover's API")
        yield from answer["data"]
        left -= len(answer["data"])
        if not answer.get("next_page") or left <= 0:
            return
        query["page"] = answer["next_page"]


def _line(entry: dict[str, Any]) -> str:
    where = entry["host"] or "-"
    if entry["port"]:
        where += f":{entry['port']}"
    parts = [
        entry["created_at"],
        f"{entry['verdict']:<7}",
        f"{entry['kind']:<6}",
        entry["session_id"] or "-",
        entry["credential_id"] or "-",
        entry["method"] or "-",
        where + (entry["path"] or ""),
    ]
    return "  ".join(parts) + (f"  ({entry['reason']})" if entry["reason"] else "")
