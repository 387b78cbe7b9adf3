"""What else a machine may have: Python, programs, services, ports, disk, a model."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from catalogue.models import load
from chassis.errors import CannotStartError
from cli.doctor.finding import Finding, fine, missing, optional
from cli.stack import ports

if TYPE_CHECKING:
    from collections.abc import Mapping

_PYTHON = (3, 11)
_ROOM = 2 * 1024**3  # bytes
_PROVIDER = "DROVER_MODEL_PROVIDER"
_MODELS_FILE = "DROVER_MODELS_FILE"
# What the clouds' clients need beside the SDK, and the extra of Drover that has it.
CLOUDS = {
    "bedrock": ("boto3", "bedrock"),
    "bedrock_mantle": ("boto3", "bedrock"),
    "aws": ("boto3", "bedrock"),
    "vertex": ("google.auth", "vertex"),
    "google_cloud": ("google.auth", "vertex"),
    "foundry": ("", ""),
}
_CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE")


def system() -> Finding:
    """The operating system: sandboxes and supervision need Linux."""
    detail = f"{platform.system()} {platform.release()}, {os.cpu_count()} CPUs"
    if sys.platform != "linux":
        return missing("system", detail, "run Drover on Linux")
    return fine("system", detail)


def python() -> Finding:
    """The Python that runs this."""
    detail = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < _PYTHON:
        return missing("Python", detail, "install Python 3.11 or newer and run make setup again")
    return fine("Python", detail)


def ripgrep() -> Finding:
    """Whether agents find ripgrep in the sandbox, which sees the system's programs."""
    program = shutil.which("rg")
    if program is None:
        return optional(
            "ripgrep",
            "not installed; the grep tool does without, commands of agents may ask for it",
            "apt-get install ripgrep",
        )
    return fine("ripgrep", program)


def port(number: int) -> Finding:
    """Whether the API's port can be had."""
    if ports.is_free(ports.LOOPBACK, number):
        return fine("port", f"{number} is free")
    return optional("port", f"{number} is in use", "give drover up another one with --port")


def disk(data: Path) -> Finding:
    """Whether the data directory can be written and has room."""
    place = data.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    detail = f"{free / 1024**3:.1f} GiB free for {data}"
    if not os.access(place, os.W_OK):
        return missing("disk", f"{place} cannot be written", "name another directory with --data")
    if free < _ROOM:
        return optional("disk", detail, "make room: logs and workspaces grow")
    return fine("disk", detail)


def model(environ: Mapping[str, str]) -> Finding:
    """Which model agents will use."""
    provider = environ.get(_PROVIDER, "anthropic")
    if provider != "anthropic":
        return _cloud(provider)
    given = environ.get("ANTHROPIC_BASE_URL")
    base_url = _origin(given) if given else None
    if given and base_url is None:
        return optional(
            "model",
            "ANTHROPIC_BASE_URL is no http or https URL",
            "set it to the address of a server that speaks the Messages API, or unset it",
        )
    where = f" at {base_url}" if base_url else ""
    named = next((name for name in _CREDENTIALS if environ.get(name)), None)
    if named is not None:
        return fine("model", f"{named} is set{where}")
    if base_url:
        return fine("model", f"ANTHROPIC_BASE_URL is {base_url}, used without a key")
    return optional(
        "model",
        "no key: agents use the scripted rehearsal model, offline",
        "set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a server that speaks the Messages API",
    )


def models_file(environ: Mapping[str, str]) -> list[Finding]:
    """Whether the operator's list of models, if there is one, can be used."""
    named = environ.get(_MODELS_FILE)
    if not named:
        return []
    try:
        load(Path(named))
    except CannotStartError as error:
        return [missing("list of models", str(error), f"mend it, or unset {_MODELS_FILE}")]
    return [fine("list of models", f"{named}, over the one that ships")]


def _cloud(provider: str) -> Finding:
    """A cloud that serves models: its library is there, its credentials are not looked for."""
    if provider not in CLOUDS:
        known = ", ".join(("anthropic", *CLOUDS))
        return missing("model", f"{_PROVIDER} names no provider", f"set it to one of {known}")
    library, extra = CLOUDS[provider]
    if library and not _is_there(library):
        return missing(
            "model", f"{provider} needs {library}", f"pip install 'drover[{extra}]', or make setup"
        )
    return fine(
        "model",
        f"{provider}, as {_PROVIDER} says; its region, project and credentials are tried first by "
        "a request",
    )


def _is_there(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _origin(url: str) -> str | None:
    """Scheme, host and port of an HTTP URL, without the user or password that it may hold."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}"
