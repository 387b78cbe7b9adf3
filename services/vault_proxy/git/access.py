"""What is exchanged with a git host in a repository's name: its token out, no word of it back."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

from catalogue.repositories import FORBIDDEN, NOT_FOUND, UNAUTHENTICATED
from chassis.errors import DroverError, Reason
from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.domain.verdict import Answer

if TYPE_CHECKING:
    from services.vault_proxy.domain.ports import Headers
    from services.vault_proxy.domain.server_credential import SessionSecrets
    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.domain.verdict import GitRoute

USER: Final = "x-access-token"
"""The name under which the large hosts take a token as a password."""

_SENT: Final = frozenset(
    {b"accept", b"accept-language", b"cache-control", b"content-encoding", b"content-type"}
    | {b"git-protocol", b"pragma", b"user-agent"}
)
_ANSWERED: Final = frozenset(
    {b"cache-control", b"content-encoding", b"content-type", b"expires", b"pragma"}
)
_OURS: Final = b"application/x-git-"
_OK: Final = 200
_REDIRECTS: Final = range(300, 400)
_TEXTS: Final = {
    401: (
        403,  # on a 401 git asks for a name and a password, which nobody can type
        f"{UNAUTHENTICATED}. Give it a token that is valid: POST to the resource of the session.",
    ),
    403: (403, f"{FORBIDDEN}. Give it a token with the permission that is missing."),
    404: (404, f"{NOT_FOUND}. Its URL may be wrong, or it needs a token that may read it."),
}


class RepositoryAccess:
    """See `domain.ports.GitProxy`."""

    def __init__(self, secrets: SessionSecrets) -> None:
        self._secrets = secrets

    async def request(
        self, facts: SessionFacts, route: GitRoute, headers: Headers
    ) -> list[tuple[bytes, bytes]]:
        """The headers as the upstream is to get them. Raises `RefusedError`."""
        host = route.upstream.partition("://")[2]
        # In what is encoded nothing could be struck out; packs are compressed by themselves.
        sent = [(b"host", host.encode()), (b"accept-encoding", b"identity")]
        sent += [(name, value) for name, value in headers if name.lower() in _SENT]
        try:
            secret = await self._secrets.of(facts.workspace_id, facts.session_id, route.resource_id)
        except DroverError as error:
            raise RefusedError(_unusable(error)) from error
        if secret is not None:
            basic = b64encode(f"{USER}:{secret.open()}".encode())
            sent.append((b"authorization", b"Basic " + basic))
        return sent

    def answer(self, status: int, headers: Headers) -> Answer:
        """The host's answer as it came where it is git's own; a sentence for all others.

        What else a host may say, of a request that it refuses before all, could repeat what it was
        sent.
        """
        kept = [(name, value) for name, value in headers if name.lower() in _ANSWERED]
        kind = next((value for name, value in kept if name.lower() == b"content-type"), b"")
        if status == _OK and kind.startswith(_OURS):
            return Answer(status, kept)
        if status in _TEXTS:
            status, text = _TEXTS[status]
        elif status in _REDIRECTS:
            text = (
                "The git host redirects to another URL, and a token is sent to none but the "
                "session's own repository. Create a session with the repository's present URL."
            )
            status = 403
        elif status < 400:  # noqa: PLR2004
            text, status = "What answered there is no git host: it speaks no smart HTTP.", 502
        else:
            text = f"The git host answered with the status {status}."
        typed = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        return Answer(status, typed, f"{text}\n".encode())


def _unusable(error: DroverError) -> Refusal:
    away = error.reason in {Reason.UNAVAILABLE, Reason.DEADLINE_EXCEEDED}
    if away:
        text = "The repository's token cannot be unlocked at present: try again later."
    else:
        text = "The repository's token cannot be unlocked: give it a new one."
    return Refusal(Why.CREDENTIAL_UNUSABLE, text, 503 if away else 403)
