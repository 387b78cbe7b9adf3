"""Whether the vault proxy could start: it opens its keys, and reads what it trusts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from chassis.errors import CannotStartError
from chassis.secret import Secret
from cli.doctor.finding import Finding, fine, missing, optional
from cli.stack.installation import Installation
from cli.stack.plan import Plan, public
from cli.stack.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SERVICE: Final = "vault_proxy"
_DEADLINE: Final = 60.0  # s
_EXAMINE: Final = ("-m", "services.vault_proxy.examine")
_REMEDY: Final = "see docs/credentials.md; `drover config` lists the settings"


def vault(data: Path, port: int, environ: Mapping[str, str]) -> list[Finding]:
    """What the vault proxy says that it could not start with, tried by a process like it."""
    try:
        environment = _environment(data, port, environ)
    except CannotStartError:
        return []  # of a database or an address: told where those are looked at
    try:
        done = _run(environment)
        told: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return [optional("vault proxy", f"it could not be tried: {error}")]
    return [
        missing(subject, why, _REMEDY) if why else fine(subject, "the vault proxy can start")
        for subject, why in told.items()
    ]


def _environment(data: Path, port: int, environ: Mapping[str, str]) -> dict[str, str]:
    """What `drover up` would start it with."""
    plan = Plan.make(host=LOOPBACK, port=port, brains=1, ports=range(1, 6))
    orders = plan.orders(Installation(data), environ, Secret("unused"))
    own = next(order for order in orders if order.name == _SERVICE)
    return public(environ) | own.environment


def _run(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # this installation's own program
        [sys.executable, *_EXAMINE],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )
