"""Session grants: signed, minutes long, bound to session, hand, workspace and vaults.

A grant says who asks. What that session may do is asked of SessionService at every request, and so
a grant outlives neither the session nor a change of its vaults (ARCHITECTURE §7, case V4).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Final

from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why

LIFE_SECONDS: Final = 300
_PREFIX: Final = "drover_grant_"
_MAX: Final = 4096
_MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Grant:
    """What a grant says. Times are Unix microseconds; `vaults` stands for the session's list."""

    session_id: str
    hand_id: str
    workspace_id: str
    vaults: str
    given_at: int
    expires_at: int


def new_grant(
    *, session_id: str, hand_id: str, workspace_id: str, vault_ids: Iterable[str], now: int
) -> Grant:
    """A grant that is given at `now`."""
    return Grant(
        session_id, hand_id, workspace_id, told(vault_ids), now, now + LIFE_SECONDS * _MICRO
    )


def told(vault_ids: Iterable[str]) -> str:
    """A list of vaults in a word: another list, or another order, is another word."""
    return hashlib.sha256(json.dumps([*vault_ids]).encode()).hexdigest()[:32]


def sign(key: bytes, grant: Grant) -> str:
    """The grant as text. Whoever has it is taken for the hand that it names."""
    said = _encoded(json.dumps(astuple(grant)).encode())
    return f"{_PREFIX}{said}.{_encoded(_mac(key, said))}"


def read(key: bytes, text: str, now: int) -> Grant:
    """What a grant says, if it is genuine and still good. Raises `RefusedError`."""
    grant = verified(key, text)
    if now >= grant.expires_at:
        raise RefusedError(EXPIRED)
    return grant


def verified(key: bytes, text: str) -> Grant:
    """What a grant says, whether it has ended or not, if this installation signed it.

    The signature is compared in constant time, before anything is believed. Raises `RefusedError`.
    """
    said, _, signature = text.removeprefix(_PREFIX).partition(".")
    genuine = len(text) <= _MAX and text.startswith(_PREFIX)
    if not hmac.compare_digest(_mac(key, said), _decoded(signature)) or not genuine:
        raise RefusedError(INVALID)
    return Grant(*json.loads(_decoded(said)))


def _mac(key: bytes, said: str) -> bytes:
    return hmac.new(key, said.encode(errors="surrogatepass"), hashlib.sha256).digest()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


INVALID: Final = Refusal(
    Why.GRANT_INVALID, "no session's grant was shown: the hands service brings it along"
)
EXPIRED: Final = Refusal(
    Why.GRANT_EXPIRED, "the session's grant has ended: the hands service renews it by itself"
)
REVOKED: Final = Refusal(
    Why.GRANT_REVOKED,
    "the session's grant was taken back, or its vaults are others now: a new one is needed",
)
ENDED: Final = Refusal(
    Why.SESSION_ENDED, "the session is archived, terminated or deleted: nothing is let out for it"
)
