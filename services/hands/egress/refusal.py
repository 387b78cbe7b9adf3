"""What a program is answered whose connection cannot be relayed: a whole HTTP answer."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection is not relayed. `reason` is for programs, `message` says what would help."""

    status: str
    kind: str
    reason: str
    message: str

    def answer(self) -> bytes:
        """The answer, in the shape of the proxy's own refusals (docs/credentials.md)."""
        error = {"type": self.kind, "reason": self.reason, "message": self.message}
        body = json.dumps({"type": "error", "error": error}).encode()
        verdict = "denied" if self.kind == "egress_denied" else "unavailable"
        head = (
            # Clients show the phrase of a failed CONNECT, and nothing else of it.
            f"HTTP/1.1 {self.status} (egress {verdict}: {self.reason})\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n"
            f"x-drover-egress: {verdict}; reason={self.reason}\r\n"
            "connection: close\r\n\r\n"
        )
        return head.encode("ascii") + body


class RefusedError(Exception):
    """A connection is not relayed."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def _unavailable(reason: str, message: str) -> Refusal:
    return Refusal("502 Bad Gateway", "egress_unavailable", reason, message)


NO_SESSION = _unavailable("no_session", "this sandbox serves no session: it has no network")
NO_PROXY = _unavailable(
    "proxy_unreachable",
    "the egress proxy cannot be reached: there is no other way out. Try again in a moment",
)
TOO_MANY = Refusal(
    "503 Service Unavailable",
    "egress_unavailable",
    "too_many_connections",
    "this sandbox has as many connections open as it may have: close some",
)


def no_grant(message: str) -> Refusal:
    """The vault proxy gives no grant at the moment."""
    text = f"the vault proxy gives this session no access at the moment ({message})"
    return _unavailable("vault_proxy_unavailable", text)


def no_access(message: str) -> Refusal:
    """The vault proxy will not give this session a grant."""
    text = f"this session has no access to the network: {message}"
    return Refusal("403 Forbidden", "egress_denied", "session_refused", text)
