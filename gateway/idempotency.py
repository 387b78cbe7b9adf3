"""Which requests are one and the same: what the services tell a repetition by.

A client may say so itself by an `Idempotency-Key`. The official client sends none when it repeats
a request by its own policy, but counts: then the same key, verb, path and body are the same
request, if it was answered a short while ago.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.api.v1.request_key_pb2 import RequestKey

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request

    from chassis.secret import Secret
    from gateway.auth import Caller

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "idempotent-replayed"
MAX_LENGTH: Final = 255
PATTERN: Final = r"^[!-~]+$"

_ATTEMPT: Final = "x-stainless-retry-count"
_KEY: Final = re.compile(rf"[!-~]{{1,{MAX_LENGTH}}}", re.ASCII)
_COUNT: Final = re.compile(r"\d{1,4}", re.ASCII)
_LABEL: Final = b"drover: which HTTP requests are the same"
_BYTES: Final = 16


class RequestKeys:
    """Makes request keys, alike in every gateway of the installation that has this secret."""

    def __init__(self, secret: Secret) -> None:
        self._secret = hmac.digest(secret.open().encode(), _LABEL, "sha256")

    def of(
        self, caller: Caller, request: Request, body: bytes, received_at: datetime
    ) -> RequestKey | None:
        """The request's key; `None` for a client that neither names nor counts its requests.

        Raises INVALID_ARGUMENT for an `Idempotency-Key` that is none.
        """
        given = request.headers.getlist(HEADER)
        count = request.headers.get(_ATTEMPT, "")
        if not given and not _COUNT.fullmatch(count):
            return None
        scope = request.scope
        path = scope["raw_path"] + b"?" + scope["query_string"]
        what = self._hash(request.method.encode(), path, body)
        whose = (caller.workspace_id.encode(), caller.key)
        key = RequestKey()
        key.received_at.FromDatetime(received_at)
        if given:
            key.id = self._hash(b"named", *whose, _checked(given))
            key.fingerprint = what
        else:
            key.id = self._hash(b"counted", *whose, what)
            key.attempt = int(count)
        return key

    def _hash(self, *parts: bytes) -> bytes:
        digest = hmac.new(self._secret, digestmod=hashlib.sha256)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.digest()[:_BYTES]


def _checked(given: list[str]) -> bytes:
    if len(given) > 1:
        raise DroverError(Reason.INVALID_ARGUMENT, f"{HEADER}: is given twice")
    if not _KEY.fullmatch(given[0]):
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            f"{HEADER}: must be 1 to {MAX_LENGTH} visible ASCII characters without spaces",
        )
    return given[0].encode("ascii")
