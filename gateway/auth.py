"""Who calls: the kinds of keys, and the names that a caller may use for us."""

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
from drover.api.v1.annotations_pb2 import (
    KEY_KIND_API,
    KEY_KIND_ENVIRONMENT,
    KEY_KIND_UNSPECIFIED,
    KEY_KIND_WORK_ITEM,
    KeyKind,
)
from gateway.scopes import ADMIN

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

    from starlette.datastructures import Headers

    from chassis.secret import Secret

_WORKSPACE = "anthropic-workspace-id"
_PREFIXES = {
    "drover_env_": KEY_KIND_ENVIRONMENT,
    "drover_work_": KEY_KIND_WORK_ITEM,
    "drover_api_": KEY_KIND_API,
}
_WORKERS = frozenset({KEY_KIND_ENVIRONMENT, KEY_KIND_WORK_ITEM})
_ID_LENGTH = 24
_LABEL = b"drover: ids of a gateway's own keys"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "[::]"})  # noqa: S104  # compared, not bound


@dataclass(frozen=True, slots=True)
class Token:
    """What somebody shows, by its digest, before it is known whose it is.

    Its `kind` is the one that it looks like; unspecified if it cannot be anybody's.
    """

    kind: KeyKind.ValueType
    digest: bytes


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is: the workspace, and the digest of the key that opens it.

    `key_id` names a key without its secret. An API key opens what its `scopes` say, until it
    expires; one that `may_end` is not the gateway's own. An environment's opens that one only; a
    work item's token its item, of which `has_stopped` tells, and the item's session.
    """

    workspace_id: str
    key: bytes
    kind: KeyKind.ValueType = KEY_KIND_API
    environment_id: str = ""
    session_id: str = ""
    work_id: str = ""
    has_stopped: bool = False
    key_id: str = ""
    scopes: frozenset[str] = frozenset()
    requests_per_minute: int | None = None
    expires_at: datetime | None = None
    may_end: bool = False

    @property
    def worker(self) -> str:
        """What a worker is told by in logs: its key's id, or its item's; empty for API keys."""
        return "" if self.kind == KEY_KIND_API else self.key_id or self.work_id

    @property
    def api_key(self) -> str:
        """What an API key is told by in logs: its id; empty for workers."""
        return self.key_id if self.kind == KEY_KIND_API else ""

    @property
    def token(self) -> Token:
        """What it was told by."""
        return Token(self.kind, self.key)


class UnknownKeyError(DroverError):
    """UNAUTHENTICATED for a key that nobody has."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.UNAUTHENTICATED, message)


class EndedKeyError(DroverError):
    """UNAUTHENTICATED for an API key that was revoked or has expired."""

    def __init__(self, message: str, key_id: str) -> None:
        super().__init__(Reason.UNAUTHENTICATED, message)
        self.key_id = key_id


class ApiKeys:
    """The gateway's own API keys, of the default workspace, held as SHA-256 digests only.

    Their ids are alike in every gateway of the installation that has this `secret`, and nobody
    without it could try guesses by them: who chooses a key may choose a short one.
    """

    def __init__(self, keys: Iterable[str], secret: Secret) -> None:
        digests = dict.fromkeys(_digest(key) for key in keys if key)
        named = hmac.digest(secret.open().encode(), _LABEL, "sha256")
        self._callers = tuple(
            Caller(
                DEFAULT_WORKSPACE,
                digest,
                key_id=f"apikey_{hmac.digest(named, digest, 'sha256').hex()[:_ID_LENGTH]}",
                scopes=frozenset({ADMIN}),
            )
            for digest in digests
        )
        if not self._callers:
            msg = "there is no API key: nobody could call"
            raise ValueError(msg)

    def caller(self, headers: Headers) -> Caller | Token:
        """Who holds the key that a request carries in either of its headers, or what it carries.

        A request that shows a worker's token is the worker's, whatever else it shows. Raises
        UNAUTHENTICATED without a key and with two that could be somebody's.
        """
        candidates = [headers.get("x-api-key", ""), _bearer(headers.get("authorization", ""))]
        given = [(_digest(candidate), candidate) for candidate in candidates if candidate]
        if not given:
            raise DroverError(
                Reason.UNAUTHENTICATED,
                "an API key is required: send it as x-api-key or as Authorization: Bearer",
            )
        known = [
            caller
            for digest, _ in given
            for caller in self._callers
            if hmac.compare_digest(digest, caller.key)
        ]
        if len(known) < len(given):
            keys = {caller.key for caller in known}
            tokens = {_token(digest, text) for digest, text in given if digest not in keys}
            workers = {token for token in tokens if token.kind in _WORKERS}
            of_others = workers or {token for token in tokens if token.kind and not known}
            if len(of_others) > 1:
                raise DroverError(Reason.UNAUTHENTICATED, "two different keys are given")
            if of_others:
                return of_others.pop()
            if not known:
                return tokens.pop()
        return known[0]


def check_workspace(headers: Headers, own: str) -> None:
    """Raises PERMISSION_DENIED when a request names another workspace than its key's `own`."""
    if headers.get(_WORKSPACE, own) != own:
        raise DroverError(
            Reason.PERMISSION_DENIED, f"{_WORKSPACE}: the key belongs to another workspace"
        )


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
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"drover_{secrets.token_urlsafe(32)}\n")
            with suppress(FileExistsError):  # another process was faster: its key it is
                os.link(draft, path)
        finally:
            draft.unlink()
    return path.read_text(encoding="utf-8").split()


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _token(digest: bytes, text: str) -> Token:
    for prefix, kind in _PREFIXES.items():
        if text.startswith(prefix):
            return Token(kind, digest)
    return Token(KEY_KIND_UNSPECIFIED, digest)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
