"""`drover keys`: the keys with which workers of self-hosted environments take their work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from cli.errors import fail, told_errors
from cli.options import DEFAULT_DATA, Data, Key, Url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anthropic import Anthropic

app = typer.Typer(help="Keys of self-hosted environments, for their workers.", no_args_is_help=True)
Environment = Annotated[
    str, typer.Option("--environment", metavar="ID", help="Id of the self-hosted environment.")
]

_BETA: Final = {"anthropic-beta": "managed-agents-2026-04-01"}


@app.command()
def create(
    *,
    environment: Environment,
    name: Annotated[str | None, typer.Option(help="What the key is for, in your words.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the key alone.")] = False,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Makes a key and prints it, this once: only its digest is kept."""
    from cli.target import resolve
    from cli.terminal import Terminal

    with told_errors():
        path = _path(environment)
        body = {} if name is None else {"name": name}
        client = resolve(url, api_key, data).client()
        made = _object(client.post(path, cast_to=object, body=body, options={"headers": _BETA}))
        if "key" not in made:  # an attempt had come off whose answer was lost on its way
            fail(
                f"the key {made['id']} was made, but the answer that shows it was lost: revoke it "
                f"with `drover keys revoke {made['id']} --environment {environment}`, and make "
                "another"
            )
        if not quiet:
            Terminal(stderr=True).say(
                f"{made['id']} opens the work queue of {environment}. "
                "Keep the key now: it is not shown again."
            )
        print(made["key"])


@app.command("list")
def list_(
    *,
    environment: Environment,
    every: Annotated[bool, typer.Option("--all", help="Those that were revoked, too.")] = False,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Lists an environment's keys, newest first, by what may be shown of them."""
    from cli.target import resolve
    from cli.terminal import Terminal

    with told_errors():
        out = Terminal()
        client = resolve(url, api_key, data).client()
        for key in _listed(client, _path(environment), every=every):
            ended = f"  revoked {key['revoked_at']}" if key["revoked_at"] else ""
            name = f"  {key['name']}" if key["name"] else ""
            out.say(f"{key['id']}  …{key['hint']}  {key['created_at']}{ended}{name}")


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Id of the key, as `drover keys list` shows it.")],
    *,
    environment: Environment,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Revokes a key for good: from this moment on it opens nothing."""
    from cli.target import resolve

    with told_errors():
        if not key:
            fail("an empty id names no key")
        path = f"{_path(environment)}/{quote(key, safe='')}"
        client = resolve(url, api_key, data).client()
        ended = _object(client.delete(path, cast_to=object, options={"headers": _BETA}))
        print(f"{ended['id']} revoked at {ended['revoked_at']}")


def _listed(client: Anthropic, path: str, *, every: bool) -> Iterator[dict[str, Any]]:
    query = {"limit": "100", "include_revoked": str(every).lower()}
    while True:
        page = _object(
            client.get(path, cast_to=object, options={"headers": _BETA, "params": query})
        )
        yield from page["data"]
        if not page.get("next_page"):
            return
        query["page"] = page["next_page"]


def _path(environment: str) -> str:
    if not environment:
        fail("an empty id names no environment")
    return f"/v1/environments/{quote(environment, safe='')}/keys"


def _object(answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict):
        fail("the answer is not that of Drover's API")
    return answer
