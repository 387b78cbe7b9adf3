"""`drover skills`: folders with a SKILL.md, uploaded for agents to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.errors import fail, told_errors
from cli.options import DEFAULT_DATA, Data, Key, Url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from anthropic import Anthropic
    from anthropic.types.beta import BetaSkill
    from anthropic.types.beta.skills import BetaSkillVersion

app = typer.Typer(help="Skills: folders with a SKILL.md, for agents to use.", no_args_is_help=True)

_PAGE: Final = 100
_ID: Final = "skill_"
"""No name has an underscore, so that what begins like an id is one."""
_LONG: Final = 1 << 20
"""Bytes of an upload whose progress is worth showing."""


@app.command()
def push(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", exists=True, file_okay=False, help="With a SKILL.md in it."),
    ],
    *,
    name: Annotated[
        str | None,
        typer.Option(metavar="DISPLAY", help="What to show of a new skill; default its name."),
    ] = None,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Uploads a folder as a new skill, or as a new version of the skill of the same name.

    The name is the SKILL.md's, or the folder's where that has none. What may be executed stays so.
    `.git`, `__pycache__` and `.DS_Store` are left out.
    """
    from tempfile import TemporaryFile

    from cli.skill_folder import is_text, pack, read_text
    from cli.target import resolve
    from cli.terminal import escaped

    with told_errors(), TemporaryFile() as packed:
        text = read_text(folder)
        if name is not None and not is_text(name):
            fail(f"--name {escaped(name)} is not UTF-8")
        target = resolve(url, api_key, data)
        pack(folder, text.name, packed)
        with target.client() as client:
            known = _named(client, text.name)
            if len(known) > 1:
                ids = ", ".join(skill.id for skill, _ in known)
                fail(f"several skills are named {text.name} ({ids}): remove all of them but one")
            skill = known[0][0] if known else None
            if skill is not None and name not in (None, skill.display_name):
                kept = repr(skill.display_name)
                fail(f"{skill.id} is shown as {kept}, which stays so: leave --name out")
            print(_upload(client, text.name, packed, skill, name))


@app.command("list")
def list_(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON Lines.")] = False,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Lists skills, newest first, each with its newest version."""
    import json

    from cli.target import resolve
    from cli.terminal import Terminal, escaped

    with told_errors(), resolve(url, api_key, data).client() as client:
        out = Terminal()
        found = False
        for skill, version in _listed(client):
            found = True
            if as_json:
                told = {
                    **skill.to_dict(mode="json"),
                    "latest_version": version.to_dict(mode="json"),
                }
                print(json.dumps(told))
                continue
            shown = "" if skill.display_name == version.name else f" ({skill.display_name})"
            when = f"{version.created_at:%Y-%m-%d %H:%M}"
            text = f"{version.name}{shown}: {version.description}"
            out.say(f"{skill.id}  {version.id}  {when}  {escaped(text)}")
        if not found:
            Terminal(stderr=True).say("no skills yet: `drover skills push DIR` uploads one")


@app.command()
def remove(
    skill: Annotated[str, typer.Argument(metavar="NAME|ID", help="As `drover skills list` shows.")],
    *,
    url: Url = None,
    api_key: Key = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Deletes a skill with all its versions. Sessions that have it keep it."""
    from cli.target import resolve

    with told_errors():
        if not skill:
            fail("an empty name names no skill")
        with resolve(url, api_key, data).client() as client:
            skill_id = skill if skill.startswith(_ID) else _id_of(client, skill)
            print(f"removed {client.beta.skills.delete(skill_id).id}")


def _id_of(client: Anthropic, name: str) -> str:
    known = [skill.id for skill, _ in _named(client, name)]
    if not known:
        fail(f"no skill is named {name}")
    if len(known) > 1:
        fail(f"several skills are named {name}, say which: {', '.join(known)}")
    return known[0]


def _upload(
    client: Anthropic, name: str, packed: BinaryIO, known: BetaSkill | None, display: str | None
) -> str:
    """Uploads an archive, and says what became of it."""
    from anthropic import omit
    from rich.progress import wrap_file

    from cli.terminal import Terminal

    size = packed.tell()
    packed.seek(0)
    shown = Terminal(stderr=True)
    with wrap_file(
        packed,
        size,
        description=name,
        console=shown,
        transient=True,
        disable=size < _LONG or not shown.is_terminal,
    ) as file:
        files = [(f"{name}.zip", file, "application/zip")]
        if known is None:
            made = client.beta.skills.create(files=files, display_name=display or omit)
            return f"created {made.id} ({name}) at version {made.latest_version_id}"
        version = client.beta.skills.versions.create(known.id, files=files)
        return f"added version {version.id} to {known.id} ({name})"


def _named(client: Anthropic, name: str) -> list[tuple[BetaSkill, BetaSkillVersion]]:
    return [(skill, version) for skill, version in _listed(client) if version.name == name]


def _listed(client: Anthropic) -> Iterator[tuple[BetaSkill, BetaSkillVersion]]:
    """Skills with their newest versions, which alone say their names."""
    from anthropic import NotFoundError

    for skill in client.beta.skills.list(source="custom", limit=_PAGE):
        try:
            yield skill, client.beta.skills.versions.retrieve("latest", skill_id=skill.id)
        except NotFoundError:
            continue  # it was deleted meanwhile
