"""Ways of a request to its server: as it came, or as one of git's to a repository's host."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Final, Protocol

from catalogue.hosts import parse_url
from services.vault_proxy.domain.audit import Kind
from services.vault_proxy.domain.redaction import redaction
from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.domain.rewriting import Rewriter
from services.vault_proxy.domain.verdict import Answer
from services.vault_proxy.proxy.answers import HEADER
from services.vault_proxy.proxy.parse import malformed
from services.vault_proxy.proxy.upstream import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.vault_proxy.domain.ports import GitProxy, SessionPolicy, Stream
    from services.vault_proxy.domain.target import Target
    from services.vault_proxy.domain.verdict import GitRoute, Use
    from services.vault_proxy.proxy.parse import Fields, RequestHead, ResponseHead

_ENCODING: Final = b"content-encoding"
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_NOT_IDENTITY: Final = frozenset({b"accept-encoding", b"sec-websocket-extensions"})
"""What asks for an answer in which nothing could be found."""


class Way(Protocol):
    """Where a request goes, and what is done with it and its answer."""

    kind: Kind
    place: Place

    @property
    def uses(self) -> Sequence[Use]:
        """Credentials that were asked for so far."""
        ...

    async def out(self, head: RequestHead) -> tuple[Fields, Stream | None]:
        """The request's fields as they go out, and what rewrites its body.

        Raises `RefusedError`.
        """
        ...

    def answer(self, head: ResponseHead) -> Answer:
        """What is answered. Raises `RefusedError`."""
        ...

    def redaction(self) -> Stream | None:
        """What rewrites the answer's body, byte for byte."""
        ...


class PlainWay:
    """To the host that was asked for, with the credentials that are bound to it."""

    kind = Kind.EGRESS

    def __init__(self, policy: SessionPolicy, target: Target) -> None:
        self._substitution = policy.substitution(target)
        self._host = target.host.with_port(target.port, target.scheme).encode()
        self._bodiless = target.method == "HEAD"
        self.place = Place(
            policy.facts.session_id, target.host.text, target.port, target.scheme == "https"
        )

    @property
    def uses(self) -> Sequence[Use]:
        """As the port says."""
        return self._substitution.uses

    async def out(self, head: RequestHead) -> tuple[Fields, Stream | None]:
        """As the port says."""
        # Whether there is a body is seen by its framing, which is made anew afterwards.
        framing = [(b"Content-Length", b"%d" % head.length)] if head.length is not None else []
        if head.chunked:
            framing = [(b"Transfer-Encoding", b"chunked")]
        put_in = self._substitution.headers([*head.fields, *framing])
        fields = [one for one in put_in if one[0].lower() not in _FRAMING]
        body = self._substitution.body() if head.has_body else None
        sent = [(b"Host", self._host)]
        if self._substitution.bound:
            fields = [one for one in fields if one[0].lower() not in _NOT_IDENTITY]
            sent.append((b"Accept-Encoding", b"identity"))
        return sent + fields, body

    def answer(self, head: ResponseHead) -> Answer:
        """As the port says."""
        fields = [one for one in head.fields if one[0].lower() != HEADER]
        if self._substitution.used:
            self._must_be_readable(head)
        (_, phrase), *struck = self._substitution.answer_headers([(b"", head.reason), *fields])
        return Answer(head.status, struck, phrase=phrase)

    def redaction(self) -> Stream | None:
        """As the port says."""
        return self._substitution.answer()

    def _must_be_readable(self, head: ResponseHead) -> None:
        if self._bodiless or head.length == 0:
            return
        for name, value in head.fields:
            if name.lower() == _ENCODING and value.lower() not in {b"", b"identity"}:
                raise RefusedError(
                    Refusal(
                        Why.UNREADABLE_ANSWER,
                        "the host was sent a credential and encodes its answer, though it was "
                        "asked not to: nothing can be struck out of that. Bind the credential to "
                        "hosts that answer as they are asked",
                        502,
                    )
                )


class GitWay:
    """To the host of a repository of the session, with the repository's token."""

    kind = Kind.GIT

    def __init__(self, git: GitProxy, route: GitRoute, policy: SessionPolicy) -> None:
        self._git = git
        self._route = route
        self._facts = policy.facts
        url = parse_url(route.upstream)
        self.place = Place(
            policy.facts.session_id, url.host.text, url.port, url.scheme == "https", operators=True
        )
        self.uses: Sequence[Use] = ()
        self._struck = redaction(())

    async def out(self, head: RequestHead) -> tuple[Fields, Stream | None]:
        """As the git proxy says; the body as it is."""
        if head.upgrade is not None:
            raise malformed("git speaks no protocol but HTTP: send the request without Upgrade")
        fields = await self._git.request(self._facts, self._route, head.fields)
        self._struck = redaction(_passwords(fields))
        return fields, None

    def answer(self, head: ResponseHead) -> Answer:
        """As the git proxy says, without the token, which a hook of the host's may have printed."""
        told = self._git.answer(head.status, head.fields)
        if not self._struck or told.body is not None:
            return told
        if any(name.lower() == _ENCODING and value != b"identity" for name, value in told.headers):
            raise RefusedError(
                Refusal(
                    Why.UNREADABLE_ANSWER,
                    "the git host encodes its answer, which it was asked not to: a token that it "
                    "repeats could not be struck out of that",
                    502,
                )
            )
        struck = [(name, self._struck.replaced(value)) for name, value in told.headers]
        return Answer(told.status, struck, phrase=told.phrase)

    def redaction(self) -> Stream | None:
        """Strikes the token out."""
        return Rewriter(self._struck) if self._struck else None


def _passwords(fields: Fields) -> list[str]:
    """The token that goes along, if any does: the password of basic authentication."""
    return [
        b64decode(value.partition(b" ")[2]).decode().partition(":")[2]
        for name, value in fields
        if name == b"authorization"
    ]
