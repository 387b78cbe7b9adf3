"""Credentials of one request: put in for their placeholders, struck out of the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus

from services.vault_proxy.domain.holdings import checked
from services.vault_proxy.domain.placeholder import MARK, TOKEN
from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.domain.rewriting import Rewriter, Table
from services.vault_proxy.domain.verdict import Use

if TYPE_CHECKING:
    from services.vault_proxy.domain.holdings import Holdings, Writing
    from services.vault_proxy.domain.ports import Headers
    from services.vault_proxy.domain.session import EnvironmentCredential
    from services.vault_proxy.domain.target import Target

_NEVER: Final = frozenset({b"host", b"cookie", b"user-agent", b"referer"})
"""Headers that hold no value: servers log them, and pass them on."""
_CREDENTIALS: Final = frozenset(
    {b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"private-token"}
)
"""Headers that name an account."""
_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})
_RANGES: Final = frozenset({b"range", b"if-range"})


class RequestSubstitution:
    """See `domain.ports.Substitution`."""

    def __init__(self, holdings: Holdings, target: Target) -> None:
        self._placeholders = holdings.placeholders
        self._bound = holdings.of(target.host)
        self._target = target
        self._secure = target.scheme == "https"
        self._used: dict[str, EnvironmentCredential] = {}
        self._uses: dict[tuple[str, str], Use] = {}
        self._content_type = b""
        self._encoded = self._has_body = False
        self._in_body: Sequence[EnvironmentCredential] = ()
        self._sent: Rewriter | None = None

    @property
    def bound(self) -> bool:
        """Whether values may be in the answer; known once `headers` and `body` were called."""
        return bool(self._bound.named or self._used or self._in_body)

    @property
    def used(self) -> bool:
        """Whether a value was put into this request, or into what is still sent of it may be."""
        return bool(self._used) or (self._sent is not None and not self._sent.finished)

    @property
    def uses(self) -> Sequence[Use]:
        """What was asked for so far."""
        return tuple(self._uses.values())

    def headers(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The headers with values for placeholders. Raises `RefusedError`."""
        for place, text in (("path", self._target.path), ("query", self._target.query)):
            if MARK.decode() in text:
                self._note_all(text.encode(), f"not substituted in a {place}")
        done = [(name, self._header(name.lower(), value)) for name, value in headers]
        if self._used or (self._has_body and self._bound.in_body):
            # In pieces of its own choosing a client would see what is struck out of the whole.
            done = [(name, value) for name, value in done if name.lower() not in _RANGES]
        return done

    def body(self) -> Rewriter | None:
        """Puts values into the body, written as its type writes texts."""
        if not self._secure or not self._bound.in_body or self._encoded:
            return None
        self._in_body = self._bound.in_body
        self._sent = Rewriter(self._bound.body(_writing(self._content_type)), self._told)
        return self._sent

    def answer_headers(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The answer's headers without values."""
        table = self._struck()
        if not table.occurs(b"\n".join([part for field in headers for part in field])):
            return [*headers]
        return [(table.replaced(name), table.replaced(value)) for name, value in headers]

    def answer(self) -> Rewriter | None:
        """Strikes values out of the answer's body."""
        table = self._struck()
        return Rewriter(table) if table else None

    def _struck(self) -> Table:
        # An answer may come before all of the body is sent: what could still be put in counts.
        return self._bound.struck((*self._used.values(), *self._in_body))

    def _header(self, name: bytes, value: bytes) -> bytes:
        if name == b"content-type":
            self._content_type = value.partition(b";")[0].strip().lower()
        elif name == b"content-encoding":
            self._encoded = value.strip().lower() != b"identity"
        elif name in _LENGTHS:
            self._has_body = value.strip() != b"0"
        if MARK not in value:
            if name in _CREDENTIALS and self._bound.named:
                raise RefusedError(self._foreign(name))
            return value
        if name in _NEVER:
            self._note_all(value, f"not substituted in {name.decode()}")
            return value
        return TOKEN.sub(self._value, value)

    def _value(self, match: re.Match[bytes]) -> bytes:
        token = match[0]
        credential = self._placeholders.find(token)
        if credential is None:
            self._note(None, "no placeholder of this session")
            raise RefusedError(_UNKNOWN)
        if not self._secure:
            self._note(credential, "not substituted outside TLS")
            return token
        if credential.id not in self._bound.ids:
            self._note(credential, "not bound to this host")
            return token
        if not credential.in_header:
            self._note(credential, "not to be put into headers")
            return token
        value = checked(credential).encode()
        self._put_in(credential)
        return value

    def _told(self, token: bytes) -> None:
        credential = self._placeholders.find(token)
        if credential is None:
            return
        if credential.id not in self._bound.ids:
            self._note(credential, "not bound to this host")
        elif not credential.in_body:
            self._note(credential, "not to be put into bodies")
        else:
            self._put_in(credential)

    def _put_in(self, credential: EnvironmentCredential) -> None:
        self._used[credential.id] = credential
        self._note(credential, "")

    def _note_all(self, text: bytes, reason: str) -> None:
        for token in TOKEN.findall(text):
            self._note(self._placeholders.find(token), reason)

    def _note(self, credential: EnvironmentCredential | None, reason: str) -> None:
        vault_id, credential_id = (credential.vault_id, credential.id) if credential else ("", "")
        self._uses[credential_id, reason] = Use(vault_id, credential_id, reason)

    def _foreign(self, name: bytes) -> Refusal:
        names = ", ".join(one.name for one in self._bound.named)
        return Refusal(
            Why.FOREIGN_CREDENTIAL,
            f"{self._target.host} is bound to credentials of this session, and takes no other in "
            f"{name.decode()}: send the placeholder of {names} as it is, not encoded",
        )


def _writing(content_type: bytes) -> Writing:
    """How a text is written in a body of that type."""
    if content_type.endswith((b"/json", b"+json")):
        return _as_json
    return quote_plus if content_type == b"application/x-www-form-urlencoded" else str


def _as_json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


_UNKNOWN: Final = Refusal(
    Why.PLACEHOLDER_UNKNOWN,
    "a header has a placeholder that is none of this session's: use the environment variables as "
    "they are now, since a credential may have been deleted or archived",
)
