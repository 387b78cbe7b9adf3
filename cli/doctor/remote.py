"""`drover doctor --url`: an installation as its clients find it, from where they are."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx2

from cli.doctor.finding import Finding, fine, missing, optional
from cli.stack.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE: Final = 10.0
_SOON: Final = timedelta(days=30)
_CLOCKS: Final = 30.0
"""Seconds by which clocks may differ before it is told of."""
_HELD_UP: Final = 0.5
"""The part of the pauses between events that must be seen, or something holds them up."""
_STATES: Final = {
    "UNAVAILABLE": "cannot be reached: does it run, and do DROVER_*_ADDRESS name where?",
    "NOT_SERVING": "is there and does not serve: its database does not answer, or it stops",
    "DEADLINE_EXCEEDED": "does not answer in time: its machine is overloaded, or it hangs",
    "UNAUTHENTICATED": "has another secret: DROVER_TOKEN_FILE must be the same everywhere",
    "PERMISSION_DENIED": "does not let the gateway ask: is its certificate of this installation?",
}


def examine(url: str, key: str | None, version: str) -> list[Finding]:
    """Every check, in order; those behind one that fails are left out where they would fail, too.

    `version` is that of this command.
    """
    found: list[Finding] = []
    try:
        with httpx2.Client(base_url=url, timeout=_PATIENCE) as http:
            found.extend(_examined(http, url, key, version))
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        found.append(_unreachable(url, error))
    return found


def _examined(http: httpx2.Client, url: str, key: str | None, version: str) -> Iterator[Finding]:
    alive = http.get("/healthz")
    if _object(alive).get("status") != "ok":
        remedy = "name the address of the gateway, without a path behind it"
        if alive.is_redirect:
            remedy = f"it leads to {alive.headers.get('location')}: name that, without /healthz"
        yield missing("reachable", f"{url} answers, but is no gateway of Drover's", remedy)
        return
    yield fine("reachable", f"{url} answers")
    yield _encryption(url)
    host = http.get("/openapi.json")
    if host.status_code != httpx2.codes.OK:
        name = urlsplit(url).hostname
        remedy = f"add {name} to DROVER_ALLOWED_HOSTS of the gateways, or have the proxy keep it"
        yield missing(
            "name", f"the gateway does not answer under this name ({_told(host)})", remedy
        )
        return
    yield fine("name", "the gateway answers under this name")
    yield from _readiness(http)
    if key is None:
        yield missing("key", "there is none to try", "give --api-key, or DROVER_API_KEY")
        return
    headers = {"x-api-key": key}
    answer = http.get("/status", headers=headers)
    if answer.status_code == httpx2.codes.NOT_FOUND:
        yield optional("release", "the gateway is older than this command and tells no more")
        return
    if answer.status_code != httpx2.codes.OK:
        yield _refused(answer)
        return
    status = _object(answer)
    if status.get("type") != "status":
        remedy = "have the proxy before the gateway pass on /status as it is"
        yield missing("status", "what answers for /status is no gateway of Drover's", remedy)
        return
    yield _key(status["key"])
    yield from _clock(status)
    yield from _releases(status, version)
    yield from _processes(status.get("processes"))
    yield _streams(http, headers)


def _unreachable(url: str, error: Exception) -> Finding:
    text = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        why = text.partition("certificate verify failed: ")[2].partition(" (_ssl")[0] or text
        remedy = "have a certificate of this name; of a private authority, set SSL_CERT_FILE to it"
        return missing("TLS", f"the certificate is not trusted: {why}", remedy)
    if "SSL" in text or "WRONG_VERSION" in text:
        return missing("TLS", f"{url} does not speak TLS: {text}", "is it http:// there?")
    if "Name or service not known" in text or "No address associated" in text:
        return missing("reachable", f"the name of {url} leads nowhere", "look at the DNS entry")
    remedy = (
        "does the gateway run, does DROVER_LISTEN name this address, and is a firewall between?"
    )
    return missing("reachable", f"{url} does not answer: {text}", remedy)


def _encryption(url: str) -> Finding:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        if host in {"localhost", LOOPBACK, "::1"}:
            return fine("TLS", "none, and none is needed on this machine")
        remedy = "put a proxy that ends TLS before the gateways (docs/operations.md)"
        return optional("TLS", "none: keys and sessions cross the network in clear", remedy)
    expires = _expiry(host, parts.port or 443)
    if expires is None:
        return optional("TLS", "the certificate cannot be looked at")
    day = expires.date().isoformat()
    if expires - datetime.now(UTC) < _SOON:
        return optional("TLS", f"the certificate expires on {day}", "renew it")
    return fine("TLS", f"verified; the certificate is valid until {day}")


def _expiry(host: str, port: int) -> datetime | None:
    """When the certificate of a server expires; `None` if it cannot be seen."""
    context = ssl.create_default_context()
    try:
        with (
            socket.create_connection((host, port), _PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            certificate = connection.getpeercert() or {}
    except OSError:
        return None
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)


def _readiness(http: httpx2.Client) -> Iterator[Finding]:
    unready = _object(http.get("/readyz")).get("unready", {})
    if not unready:
        yield fine("readiness", "every service answers the gateway")
    for process, state in unready.items():
        remedy = f"look at the log of {process}; `drover ps` shows each replica"
        yield missing("readiness", f"{process} {_STATES.get(state, state)}", remedy)


def _refused(answer: httpx2.Response) -> Finding:
    told = f"{answer.status_code}: {_told(answer)}"
    if answer.status_code == httpx2.codes.UNAUTHORIZED:
        return missing(
            "key", told, "make another with `drover keys create`, with a key of an admin"
        )
    return missing("key", told, "`drover keys list` shows what keys may do")


def _key(key: dict[str, Any]) -> Finding:
    told = f"{key.get('id')} opens {key.get('workspace_id')}"
    if scopes := key.get("scopes"):
        told += f" with {', '.join(scopes)}"
    if not (expires := key.get("expires_at")):
        return fine("key", told)
    told += f", until {expires}"
    if datetime.fromisoformat(expires) - datetime.now(UTC) < _SOON:
        return optional("key", told, "have another one before that day")
    return fine("key", told)


def _clock(status: dict[str, Any]) -> Iterator[Finding]:
    ahead = (datetime.fromisoformat(status["now"]) - datetime.now(UTC)).total_seconds()
    wrong = {"the gateway": ahead} if abs(ahead) > _CLOCKS else {}
    for one in status.get("processes") or ():
        # Between machines of one installation: what is the gateway's own error is told above.
        if abs(one["clock_ahead_seconds"] or 0.0) > _CLOCKS:
            wrong[f"{one['name']} at {one['address']}"] = one["clock_ahead_seconds"]
    if not wrong:
        yield fine("clocks", "agree")
    for who, seconds in wrong.items():
        way = "ahead" if seconds > 0 else "behind"
        yield optional("clocks", f"{who} is {abs(seconds):.0f} s {way}", "have NTP set the clocks")


def _releases(status: dict[str, Any], version: str) -> Iterator[Finding]:
    running = {status["version"]}
    running.update(one["version"] for one in status.get("processes") or () if one["version"])
    if len(running) > 1:
        releases = ", ".join(sorted(running))
        remedy = "during an upgrade that is as it should be; afterwards replace the older ones"
        yield optional("release", f"processes of several run: {releases}", remedy)
    elif version not in running:
        yield optional("release", f"{status['version']}; this command is of {version}")
    else:
        yield fine("release", status["version"])


def _processes(processes: list[dict[str, Any]] | None) -> Iterator[Finding]:
    if processes is None:
        yield optional("processes", "are shown to keys with the scope admin only")
        return
    serving = [one for one in processes if one["state"] == "SERVING"]
    yield fine("processes", f"{len(serving)} of {len(processes)} serve")
    for one in processes:
        if one not in serving:
            told = f"{one['service']} at {one['address']} {_STATES.get(one['state'], one['state'])}"
            yield optional("processes", told, "others of its kind may do its work meanwhile")


def _streams(http: httpx2.Client, headers: dict[str, str]) -> Finding:
    at: list[float] = []
    with http.stream("GET", "/status/stream", headers=headers) as response:
        if response.status_code != httpx2.codes.OK:
            response.read()
            return missing("event streams", _told(response), "look at the gateway's log")
        at.extend(time.monotonic() for line in response.iter_lines() if line.startswith("data:"))
    # Whatever waits for the end sends all at once.
    if len(at) > 1 and at[-1] - at[0] > _HELD_UP * (len(at) - 1) * 0.25:
        return fine("event streams", "come as they are sent")
    remedy = "have the proxy before the gateway not buffer text/event-stream (docs/operations.md)"
    return missing("event streams", "something on the way holds events up until the end", remedy)


def _object(answer: httpx2.Response) -> dict[str, Any]:
    """The JSON object of an answer; an empty one if it is none."""
    with suppress(ValueError):
        if isinstance(body := answer.json(), dict):
            return body
    return {}


def _told(answer: httpx2.Response) -> str:
    error = _object(answer).get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return str(message or f"status {answer.status_code}")
