"""`drover config`: every setting of every process, from the classes that read them."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from pydantic_core import PydanticUndefined
from rich.padding import Padding
from rich.text import Text

from chassis.errors import CannotStartError
from chassis.secret import Secret
from chassis.settings import Settings
from cli.stack.plan import Plan
from cli.terminal import Terminal
from identity.settings import PeerSettings
from storage.address import is_sqlite, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic.fields import FieldInfo

_MASK = "***"
_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_URL")

# What runs beside a stack, where it runs in containers.
_BESIDE = ("services.engine_proxy.main",)

# Read by the command itself, or by libraries on Drover's behalf.
_ELSEWHERE = (
    ("DROVER_API_KEY", "cli", "The client's API key; `drover up` makes one when it is not set."),
    ("DROVER_URL", "cli", "The stack that commands talk to; default the one in --data."),
    ("ANTHROPIC_API_KEY", "brain", "Key of the model; without it and a base URL: rehearsal."),
    ("ANTHROPIC_BASE_URL", "brain", "A server that speaks the Messages API."),
    ("AWS_REGION", "brain", "Region of Bedrock; credentials as boto3 finds them."),
    ("AWS_ENDPOINT_URL", "hands", "Another S3 for checkpoints; region and credentials as AWS_…."),
    ("CLOUD_ML_REGION", "brain", "Region of Vertex; credentials as google-auth finds them."),
    ("ANTHROPIC_VERTEX_PROJECT_ID", "brain", "Project of Vertex."),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "all", "Where traces go; without it none are made."),
)


@dataclass(slots=True)
class Setting:
    """One setting: where it can be set, what it is, and who reads it."""

    variable: str
    description: str
    default: str
    readers: list[str] = field(default_factory=list)
    secret: bool = False


def settings_of(modules: Iterable[str]) -> list[Setting]:
    """The settings of the processes that `modules` run, shared ones first."""
    found: dict[str, Setting] = {}
    _collect(found, PeerSettings, "all")
    for module in modules:
        reader = module.removesuffix(".main").rpartition(".")[2]
        loaded = importlib.import_module(module)
        for value in vars(loaded).values():
            if isinstance(value, type) and issubclass(value, Settings):
                _collect(found, value, reader)
    return list(found.values())


def known_variables() -> set[str]:
    """The variables that somebody reads."""
    plan = Plan.make(host="127.0.0.1", port=8080, brains=1, ports=[0] * 5)
    read = {setting.variable for setting in settings_of((*plan.modules, *_BESIDE))}
    return read | {variable for variable, _, _ in _ELSEWHERE}


def show_settings(environ: Mapping[str, str] = os.environ) -> None:
    """Prints every setting with its value, who reads it, and what it is; secrets are masked."""
    plan = Plan.make(host="127.0.0.1", port=8080, brains=1, ports=[0] * 5)
    settings = settings_of((*plan.modules, *_BESIDE))
    listed = {setting.variable for setting in settings}
    settings += [
        Setting(variable, description, "not set", [reader])
        for variable, reader, description in _ELSEWHERE
        if variable not in listed
    ]
    out = Terminal()
    for setting in settings:
        given = environ.get(setting.variable)
        value = shown_value(setting.variable, given, secret=setting.secret)
        line = Text(setting.variable, style="bold")
        line.append(f" = {value}" if value else f"   {setting.default}", "" if value else "dim")
        line.append(f"   {', '.join(setting.readers)}", "cyan")
        out.print(line, highlight=False, soft_wrap=True)
        out.print(Padding(Text(setting.description), (0, 0, 0, 4), expand=False), highlight=False)


def shown_value(variable: str, value: str | None, *, secret: bool = False) -> str:
    """A value as it may be shown: what could hold a secret only says that it is set."""
    if not value:
        return ""
    if variable.endswith("DATABASE_URL"):
        return _database(value)
    if secret or variable.endswith(_SECRET_NAMES[:-1]):
        return _MASK
    if variable.endswith(_SECRET_NAMES[-1]) and "@" in value:
        scheme, _, rest = value.partition("://")
        return f"{scheme}://{_MASK}@{rest.rpartition('@')[2]}"
    return value


def _database(url: str) -> str:
    """A database's URL without user, password and parameters."""
    try:
        return url if is_sqlite(url) else f"postgresql://{_MASK}@{shown(url)}"
    except CannotStartError:
        return _MASK


def _collect(found: dict[str, Setting], settings: type[Settings], reader: str) -> None:
    prefix = settings.model_config.get("env_prefix", "")
    for name, info in settings.model_fields.items():
        variable = f"{prefix}{name}".upper()
        setting = found.get(variable)
        if setting is None:
            secret = Secret in get_args(info.annotation)
            setting = Setting(variable, info.description or "", _default(info), secret=secret)
            found[variable] = setting
        if "all" not in setting.readers and reader not in setting.readers:
            setting.readers.append(reader)


def _default(info: FieldInfo) -> str:
    if info.default_factory is not None:
        return "(see description)"
    if info.default is PydanticUndefined:
        return "(required)"
    if isinstance(info.default, Secret):
        return _MASK
    return "(none)" if info.default in {None, "", ()} else str(info.default)
