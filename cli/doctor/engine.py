"""Whether containers can be sandboxes here: the engine, its image, its runtime."""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cli.doctor.finding import Finding, fine, missing, optional

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND, IMAGE, RUNTIME = "DROVER_SANDBOX", "DROVER_SANDBOX_IMAGE", "DROVER_SANDBOX_RUNTIME"
HOST = "DOCKER_HOST"
_SUBJECT = "docker sandboxes"
_DEFAULT_IMAGE = "drover/sandbox"
_PATIENCE = 3.0  # s
_SOCKET = "unix://"


def host(environ: Mapping[str, str]) -> str:
    """Where the engine is, as a URL."""
    return environ.get(HOST) or f"{_SOCKET}/var/run/docker.sock"


def docker(environ: Mapping[str, str]) -> Finding:
    """Whether `docker` sandboxes can be started; missing only where they are the default."""
    amiss = missing if environ.get(KIND) == "docker" else optional
    if not host(environ).startswith(_SOCKET):
        return amiss(
            _SUBJECT,
            "DOCKER_HOST names an engine elsewhere, which does not see this machine's files",
            "set DOCKER_HOST to unix:///path of an engine here",
        )
    path = host(environ).removeprefix(_SOCKET)
    image = environ.get(IMAGE) or _DEFAULT_IMAGE
    try:
        _, info = _ask(path, "/info")
        status, _ = _ask(path, f"/images/{quote(image)}/json")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return amiss(
            _SUBJECT,
            f"no engine answers at {path}: {error}",
            "start one (apt-get install docker.io), or set DOCKER_HOST; local sandboxes need none",
        )
    version = info.get("ServerVersion", "of unknown version")
    if any("rootless" in option for option in info.get("SecurityOptions") or ()):
        return amiss(_SUBJECT, f"engine {version} is rootless", "use an engine that runs as root")
    runtime = environ.get(RUNTIME, "")
    runtimes = sorted(info.get("Runtimes") or {})
    if runtime and runtime not in runtimes:
        return amiss(
            _SUBJECT,
            f"engine {version} has no runtime {runtime}, only {', '.join(runtimes)}",
            f"add it to the engine's daemon.json, or change {RUNTIME}",
        )
    if status != http.client.OK:
        return amiss(
            _SUBJECT,
            f"engine {version} has no image {image}",
            f"docker build -t {image} deploy/images/sandbox",
        )
    more = f", runtimes {', '.join(runtimes)}" if "runsc" in runtimes else ""
    return fine(_SUBJECT, f"engine {version} at {path}, image {image}{more}")


def _ask(path: str, what: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("docker", timeout=_PATIENCE)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(_PATIENCE)
        connection.sock.connect(path)
        connection.request("GET", what)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        return answer.status, told if isinstance(told, dict) else {}
    finally:
        connection.close()
