"""`drover certs`: the certificates by which an installation's processes know each other."""

from __future__ import annotations

import enum
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.errors import fail, told_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

app = typer.Typer(
    help="Certificates by which the processes of an installation know each other.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The operator's directory of them.")]
_DAYS: Final = 365
_MOST_DAYS: Final = 3650
"""An authority's, which no certificate outlives."""
Days = Annotated[int, typer.Option(min=1, max=_MOST_DAYS, help="Days that a certificate is valid.")]
_RESTART: Final = "Restart every process, one after another"


class Step(enum.Enum):
    """A step of a rotation."""

    TRUST = "trust"
    SIGN = "sign"
    RETIRE = "retire"


_NEXT: Final = {
    "none": "No rotation is under way. `drover certs rotate DIR --step trust` begins one.",
    "trusted": f"All are given both authorities to trust. {_RESTART}, and then run "
    "`drover certs rotate DIR --step sign`.",
    "signed": f"The new authority has signed for all. {_RESTART}, and then run "
    "`drover certs rotate DIR --step retire`.",
}


@app.command()
def create(
    folder: Folder,
    *,
    days: Days = _DAYS,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Make only what is not there yet.")
    ] = False,
) -> None:
    """Makes a private authority, and a certificate for each process and for the operator.

    Give each process its own directory below DIR as DROVER_TLS_DIR, and none of them DIR/ca.
    """
    from cli.terminal import Terminal
    from identity.folder import Folder as Certificates

    with _told():
        made = Certificates(folder).create(datetime.now(UTC), days, if_missing=if_missing)
        out = Terminal()
        for caller in made:
            out.say(f"{folder / caller}")
        if not made:
            out.say(f"nothing is missing in {folder}")


@app.command()
def renew(
    folder: Folder,
    *,
    within: Annotated[
        int,
        typer.Option(min=0, max=_MOST_DAYS, metavar="DAYS", help="Those that end in so many days."),
    ] = 60,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    days: Days = _DAYS,
) -> None:
    """Makes the certificates anew that end soon. The authority stays the same."""
    from cli.terminal import Terminal
    from identity.folder import Folder as Certificates

    with _told():
        ends = None if every else timedelta(days=within)
        made = Certificates(folder).renew(datetime.now(UTC), ends, days)
        Terminal().say(
            f"made anew: {_listed(made)}. {_RESTART}, for it reads its certificate when it starts."
            if made
            else f"none ends within {within} days"
        )


@app.command()
def rotate(
    folder: Folder,
    *,
    step: Annotated[
        Step | None, typer.Option(help="What to do; without: say how far it is.")
    ] = None,
    days: Days = _DAYS,
) -> None:
    """Replaces the authority, in three steps, with every process restarted between them.

    At each of them those that were restarted and those that were not take each other's calls.
    """
    from cli.terminal import Terminal
    from identity.folder import Folder as Certificates

    with _told():
        certificates, now = Certificates(folder), datetime.now(UTC)
        if step is Step.TRUST:
            certificates.trust_next(now)
        elif step is Step.SIGN:
            certificates.sign_by_next(now, days)
        elif step is Step.RETIRE:
            certificates.retire_previous()
            Terminal().say(f"The old authority is no more. {_RESTART}: then nobody trusts it.")
            return
        Terminal().say(_NEXT[certificates.rotation.value].replace("DIR", str(folder)))


@app.command()
def show(folder: Folder) -> None:
    """Says of every certificate until when it is valid, and how far a rotation is."""
    from cli.terminal import Terminal
    from identity.folder import Folder as Certificates
    from identity.folder import Rotation

    with _told():
        certificates, now, out = Certificates(folder), datetime.now(UTC), Terminal()
        for one in certificates.show():
            left = (one.expires - now).days
            state = f"{left} days left" if one.expires > now else "expired"
            by = "" if one.current else "  (by the authority before)"
            out.say(f"{one.name:<12} until {one.expires:%Y-%m-%d}  {state}{by}")
        if certificates.rotation is not Rotation.NONE:
            out.say(_NEXT[certificates.rotation.value].replace("DIR", str(folder)))


@contextmanager
def _told() -> Iterator[None]:
    from identity.folder import FolderError

    with told_errors():
        try:
            yield
        except FolderError as error:
            fail(str(error))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
