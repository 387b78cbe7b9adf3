"""Ways of a request to its server: as it came, or as one of git's to a repository's host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from catalogue.hosts import parse_url
from services.vault_proxy.domain.audit import Kind
from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.domain.verdict import GitAnswer
from services.vault_proxy.proxy.answers import HEADER
from services.vault_proxy.proxy.upstream import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.vault_proxy.domain.ports import GitProxy, SessionPolicy, Stream
    from services.vault_proxy.domain.target import Target
    from services.vault_proxy.domain.verdict import GitRoute, Use
    from services.vault_proxy.proxy.parse import Fields, ResponseHead

_ENCODING: Final = b"content-encoding"
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

    async def fields(self, fields: Fields) -> Fields:
        """The request's fields as they go out, `Host` first. Raises `RefusedError`."""
        ...

    def body(self) -> Stream | None:
        """What rewrites the request's body."""
        ...

    def answer(self, head: ResponseHead) -> GitAnswer:
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

    async def fields(self, fields: Fields) -> Fields:
        """As the port says."""
        sent = [(b"Host", self._host)]
        if self._substitution.bound:
            fields = [one for one in fields if one[0].lower() not in _NOT_IDENTITY]
            sent.append((b"Accept-Encoding", b"identity"))
        return sent + self._substitution.headers(fields)

    def body(self) -> Stream | None:
        """As the port says."""
        return self._substitution.body()

    def answer(self, head: ResponseHead) -> GitAnswer:
        """As the port says."""
        fields = [one for one in head.fields if one[0].lower() != HEADER]
        if self._substitution.bound:
            self._must_be_readable(head)
            fields = self._substitution.answer_headers(fields)
        return GitAnswer(head.status, fields)

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
                        "the host is bound to a credential and encodes its answer, though it was "
                        "asked not to: nothing can be struck out of that. Bind the credential to "
                        "hosts that answer as they are asked.",
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

    async def fields(self, fields: Fields) -> Fields:
        """As the port says."""
        return await self._git.request(self._facts, self._route, fields)

    def body(self) -> Stream | None:
        """As it is."""
        return None

    def answer(self, head: ResponseHead) -> GitAnswer:
        """As the git proxy says."""
        return self._git.answer(head.status, head.fields)

    def redaction(self) -> Stream | None:
        """As it is."""
        return None
