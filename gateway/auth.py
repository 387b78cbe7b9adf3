"""Who may call: API keys, the workspace they belong to, and the names a caller may use for us."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chassis.context import DEFAULT_WORKSPACE
from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from starlette.datastructures import Headers

_WORKSPACE = "anthropic-workspace-id"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "[::]"})  # noqa: S104  # compared, not bound


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is: the workspace, and the digest of the API key that opens it."""

    workspace_id: str
    key: bytes


class ApiKeys:
    """The API keys of the default workspace, held as SHA-256 digests only."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key) for key in keys if key)
        if not self._digests:
            msg = "there is no API key: nobody could call"
            raise ValueError(msg)

    def caller(self, headers: Headers) -> Caller:
        """Who holds the key that a request carries, in either of its headers.

        Raises UNAUTHENTICATED without a known key, and PERMISSION_DENIED when the request names
        a workspace that is not the key's.
        """
        candidates = [headers.get("x-api-key", ""), _bearer(headers.get("authorization", ""))]
        given = [_digest(candidate) for candidate in candidates if candidate]
        if not given:
            raise DroverError(
                Reason.UNAUTHENTICATED,
                "an API key is required: send it as x-api-key or as Authorization: Bearer",
            )
        known = [a for a in given if any(hmac.compare_digest(a, b) for b in self._digests)]
        if not known:
            raise DroverError(Reason.UNAUTHENTICATED, "the API key is not valid")
        named = headers.get(_WORKSPACE, DEFAULT_WORKSPACE)
        if named != DEFAULT_WORKSPACE:
            raise DroverError(
                Reason.PERMISSION_DENIED, f"{_WORKSPACE}: the API key belongs to another workspace"
            )
        return Caller(DEFAULT_WORKSPACE, known[0])


class HostNames:
    """The names under which the gateway answers, against DNS rebinding (CASES A6).

    A page that a browser loaded from elsewhere can point its own name at this machine; its
    requests then carry that name as `Host`.
    """

    def __init__(self, listen: str, allowed: Iterable[str]) -> None:
        names = {*_LOOPBACK, *(name.lower() for name in allowed)}
        bound = listen.rpartition(":")[0].lower()
        if bound not in _ANY_ADDRESS:
            names.add(bound)
        self._names = frozenset(names)

    def check(self, host: str) -> None:
        """Raises PERMISSION_DENIED for a `Host` header that names another server."""
        name = host.lower()
        bare, _, port = name.rpartition(":")
        if bare and port.isdecimal():
            name = bare
        if name.removesuffix(".") not in self._names:
            raise DroverError(
                Reason.PERMISSION_DENIED,
                "the Host header is not a name of this server (DROVER_ALLOWED_HOSTS)",
            )


def key_file(path: Path) -> list[str]:
    """The keys of a file, one a line; a file with a new key, for its owner only, if missing."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"drover_{secrets.token_urlsafe(32)}\n")
        with suppress(FileExistsError):  # another process was faster: its key it is
            os.link(draft, path)
        draft.unlink()
    return path.read_text(encoding="utf-8").split()


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
