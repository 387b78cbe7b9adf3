"""Answers of the proxy's own: why a request was refused, or came to nothing, and what would help.

A refusal says in the words of the log and of the audit trail what would allow the request.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from services.vault_proxy.domain.refusal import Refusal

HEADER: Final = b"x-drover-egress"
"""Only this proxy says it: no server's is passed on."""
ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def refusal(refused: Refusal, *, keep: bool = False, bodiless: bool = False) -> bytes:
    """The whole answer. `bodiless` for a `HEAD`; without `keep` it says that it is the last."""
    word = "unavailable" if refused.failed else "denied"
    error = {"type": f"egress_{word}", "reason": refused.reason, "message": refused.message}
    body = json.dumps({"type": "error", "error": error}).encode() + b"\n"
    # Clients show the phrase of a failed CONNECT, and nothing else of it.
    phrase = f"{HTTPStatus(refused.status).phrase} (egress {word}: {refused.reason})"
    head = (
        f"HTTP/1.1 {refused.status} {phrase}\r\n"
        f"x-drover-egress: {word}; reason={refused.reason}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        f"connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    ).encode()
    return head if bodiless else head + body
