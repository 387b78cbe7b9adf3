"""`drover keys`: the keys of clients, and those of workers of self-hosted environments."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from cli.errors import fail, told_errors
from cli.options import DEFAULT_DATA, Data, Key, Url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anthropic import Anthropic

app = typer.Typer(help="Keys of clients and of workers.", no_args_is_help=True)
Environment = Annotated[
    str | None,
    typer.Option(
        "--environment",
        metavar="ID",
        help="A key for workers of this self-hosted environment; without, an API key.",
    ),
]
Workspace = Annotated[
    str | None,
    typer.Option("--workspace", metavar="ID", help="The workspace: wrkspc_ and a name of yours."),
]

_BETA: Final = {"anthropic-beta": "managed-agents-2026-04-01"}
_API_KEYS: Final = "/v1/api_keys"
_USUAL_SCOPES: Final = ("write",)
_DURATION: Final = re.compile(r"([1-9][0-9]{0,4})([smhdw])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@app.command()
def create(
    *,
    environment: Environment = None,
    workspace: Workspace = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What it opens: admin, write, read, or of one area only, such as sessions:write; "
            "may be repeated. Default write: all of its workspace."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What the key is for, in your words.")] = None,
    expires_in: Annotated[
        str | None,
        typer.Option(metavar="90d", help="When it ends: a number and s, m, h, d or w."),
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, help="How many requests a minute a gateway takes of it.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the key alone.")] = False,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Makes a key and prints it, this once: only its digest is kept.

    An API key opens a workspace, which is there as soon as it has one. It takes a key with the
    scope admin to make another, as the one is that `drover up` prints.
    """
    from cli.target import resolve
    from cli.terminal import Terminal

    with told_errors():
        body: dict[str, Any] = {} if name is None else {"name": name}
        only: dict[str, object] = {
            "--workspace": workspace,
            "--scope": scope or None,
            "--expires-in": expires_in,
            "--requests-per-minute": requests_per_minute,
        }
        if environment is not None:
            _refuse_with_environment(only)
        else:
            body["scopes"] = scope or list(_USUAL_SCOPES)
            if workspace is not None:
                body["workspace_id"] = workspace
            if expires_in is not None:
                body["expires_at"] = (datetime.now(UTC) + _duration(expires_in)).isoformat()
            if requests_per_minute is not None:
                body["requests_per_minute"] = requests_per_minute
        path = _path(environment)
        with resolve(url, api_key, data).client() as client:
            answer = client.post(path, cast_to=object, body=body, options={"headers": _BETA})
        made = _object(answer)
        if "key" not in made:  # an attempt had come off whose answer was lost on its way
            where = "" if environment is None else f" --environment {environment}"
            fail(
                f"the key {made['id']} was made, but the answer that shows it was lost: revoke it "
                f"with `drover keys revoke {made['id']}{where}`, and make another"
            )
        if not quiet:
            Terminal(stderr=True).say(
                f"{made['id']} opens {_opened(made)}. Keep the key now: it is not shown again."
            )
        print(made["key"])


@app.command("list")
def list_(
    *,
    environment: Environment = None,
    workspace: Workspace = None,
    every: Annotated[bool, typer.Option("--all", help="Those that were revoked, too.")] = False,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Lists API keys or an environment's, newest first, by what may be shown of them."""
    from cli.target import resolve
    from cli.terminal import Terminal

    with told_errors():
        if environment is not None:
            _refuse_with_environment({"--workspace": workspace})
        out = Terminal()
        path = _path(environment)
        with resolve(url, api_key, data).client() as client:
            for key in _listed(client, path, workspace, every=every):
                out.say(_shown(key))


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Id of the key, as `drover keys list` shows it.")],
    *,
    environment: Environment = None,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Revokes a key for good.

    From this moment on an environment's opens nothing, an API key after a few seconds
    (DROVER_KEY_CACHE_SECONDS). Streams that it opened end.
    """
    from cli.target import resolve

    with told_errors():
        if not key:
            fail("an empty id names no key")
        path = f"{_path(environment)}/{quote(key, safe='')}"
        with resolve(url, api_key, data).client() as client:
            ended = _object(client.delete(path, cast_to=object, options={"headers": _BETA}))
        print(f"{ended['id']} revoked at {ended['revoked_at']}")


def _listed(
    client: Anthropic, path: str, workspace: str | None, *, every: bool
) -> Iterator[dict[str, Any]]:
    query = {"limit": "100", "include_revoked": str(every).lower()}
    if workspace is not None:
        query["workspace_id"] = workspace
    while True:
        page = _object(
            client.get(path, cast_to=object, options={"headers": _BETA, "params": query})
        )
        yield from page["data"]
        if not page.get("next_page"):
            return
        query["page"] = page["next_page"]


def _shown(key: dict[str, Any]) -> str:
    from cli.terminal import escaped

    parts = [key["id"], f"…{key['hint']}"]
    if "scopes" in key:
        parts += [key["workspace_id"], ",".join(key["scopes"])]
    parts.append(key["created_at"])
    if limit := key.get("requests_per_minute"):
        parts.append(f"{limit} a minute")
    parts += [
        f"{word} {key[name]}"
        for word, name in (("expires", "expires_at"), ("revoked", "revoked_at"))
        if key.get(name)
    ]
    if key["name"]:
        parts.append(escaped(key["name"]))
    return "  ".join(parts)


def _opened(made: dict[str, Any]) -> str:
    if "scopes" not in made:
        return f"the work queue of {made['environment_id']}"
    until = f" until {made['expires_at']}" if made["expires_at"] else ""
    return f"{made['workspace_id']} with {', '.join(made['scopes'])}{until}"


def _path(environment: str | None) -> str:
    if environment is None:
        return _API_KEYS
    if not environment:
        fail("an empty id names no environment")
    return f"/v1/environments/{quote(environment, safe='')}/keys"


def _refuse_with_environment(options: dict[str, object]) -> None:
    """Ends the command for an option that only API keys have."""
    for option, value in options.items():
        if value is not None:
            fail(f"{option} is for API keys: an environment's key has none, leave it out")


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        fail(f"--expires-in {text}: say a number and s, m, h, d or w, such as 90d")
    number, unit = found.groups()
    return timedelta(**{_UNITS[unit]: int(number)})


def _object(answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict):
        fail("the answer is not that of Drover's API")
    return answer
