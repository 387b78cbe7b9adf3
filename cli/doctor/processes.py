"""Whether each process takes the settings that it would be started with."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from pydantic import ValidationError

from chassis.settings import Settings
from cli.doctor.finding import Finding, fine, missing, optional
from cli.settings import known_variables
from cli.stack.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SUBJECT = "settings"
_OURS = "DROVER_"
_TESTS = ("DROVER_TEST_", "DROVER_SOAK")
# Pydantic's names of what `drover up` sets by itself, and of a default made of another in error.
_NOT_AMISS = frozenset({"missing", "default_factory_not_called"})


def settings() -> list[Finding]:
    """What is amiss with the variables of this process's environment, once each."""
    plan = Plan.make(host="127.0.0.1", port=8080, brains=1, ports=[0] * 5)
    found: dict[str, str] = {}
    for module in dict.fromkeys(plan.modules):
        for variable, why in _refused(module):
            found.setdefault(variable, why)
    if not found:
        return [fine(_SUBJECT, "all processes take them")]
    return [
        missing(_SUBJECT, f"{variable}: {why}", f"set {variable} right, or unset it")
        for variable, why in found.items()
    ]


def unread(environ: Iterable[str]) -> list[Finding]:
    """Variables that look like settings and are none: misspelt, or of another release."""
    known = known_variables()
    strange = [name for name in environ if name.startswith(_OURS) and name not in known]
    return [
        optional(_SUBJECT, f"{name} is no setting: nobody reads it", _meant(name, known))
        for name in sorted(strange)
        if not name.startswith(_TESTS)
    ]


def _meant(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), 1, 0.8)
    return f"is it {near[0]}?" if near else "`drover config` lists those that there are"


def _refused(module: str) -> Iterator[tuple[str, str]]:
    known = vars(importlib.import_module(module)).values()
    read = [one for one in known if isinstance(one, type) and issubclass(one, Settings)]
    for value in read:
        if any(other is not value and issubclass(other, value) for other in read):
            continue  # a part of the one that is this process's own
        prefix = value.model_config.get("env_prefix", "")
        try:
            value()
        except ValidationError as error:
            for one in error.errors(include_input=False, include_url=False):
                if one["type"] not in _NOT_AMISS and one["loc"]:
                    why = one["msg"].removeprefix("Value error, ")
                    yield f"{prefix}{one['loc'][0]}".upper(), why
