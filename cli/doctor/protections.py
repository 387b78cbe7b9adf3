"""What the installation's sandboxes protect against on this host, one row for each protection."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from cli.doctor.engine import HOST, KIND, RUNTIME, host
from cli.doctor.finding import Finding, fine, missing, optional

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MINIMUM: Final = "DROVER_SANDBOX_MINIMUM"
_DEFAULT: Final = "isolated"
_DEADLINE: Final = 60.0  # s
_EXAMINE: Final = ("-m", "services.hands.examine")
_KINDS: Final = ("local", "docker")


def protections(environ: Mapping[str, str]) -> list[Finding]:
    """What holds of the sandboxes that are the installation's default: a trial one tells."""
    kind = environ.get(KIND) or "local"
    if kind not in _KINDS:
        return []
    least = environ.get(MINIMUM) or _DEFAULT
    more = (host(environ), environ.get(RUNTIME, "")) if kind == "docker" else ()
    try:
        done = _run([least, kind, *more])
        rows: Sequence[Mapping[str, Any]] = json.loads(done.stdout or "null")
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return [_untold(str(error))]
    if done.returncode != 0 or rows is None:
        return [_untold((done.stderr.strip().splitlines() or ["no reason was given"])[-1])]
    return [_row(kind, row) for row in rows]


def _row(kind: str, row: Mapping[str, Any]) -> Finding:
    subject = f"{kind}: {row['name']}"
    if not row["lacking"]:
        return fine(subject, "holds")
    why, _, remedy = row["lacking"].rpartition(": ")
    detail = f"does not hold{f': {why}' if why else ''}"
    if row["wanted"]:
        return missing(subject, f"{detail}, and {MINIMUM} asks for it", remedy)
    return optional(subject, detail, remedy)


def _untold(why: str) -> Finding:
    return optional("protections", f"no trial could be made: {why}", f"see {HOST} and {MINIMUM}")


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # this installation's own program
        [sys.executable, *_EXAMINE, *arguments],
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )
