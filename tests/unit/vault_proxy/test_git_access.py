"""What a git host is sent in a repository's name, and what comes back of its answers (V14)."""

from __future__ import annotations

import base64

import pytest

from catalogue.repositories import FORBIDDEN, NOT_FOUND, UNAUTHENTICATED
from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from drover.session.v1 import session_pb2
from services.vault_proxy.domain.refusal import RefusedError
from services.vault_proxy.domain.session import SessionFacts
from services.vault_proxy.domain.verdict import GitRoute
from services.vault_proxy.git.access import RepositoryAccess

TOKEN = "ghp_canary"  # noqa: S105
FACTS = SessionFacts("wrkspc_1", "hand_1", session_pb2.Session(id="sesn_1"))
ROUTE = GitRoute("sesrsc_1", "http://127.0.0.1:3000")


class Secrets:
    def __init__(self, held=TOKEN, error=None):
        self.held = held
        self.error = error
        self.asked = []

    async def of(self, *of):
        self.asked.append(of)
        if self.error is not None:
            raise self.error
        return None if self.held is None else Secret(self.held)


async def test_the_token_is_put_in_and_what_the_sandbox_says_of_itself_left_out():
    secrets = Secrets()
    sent = await RepositoryAccess(secrets).request(
        FACTS,
        ROUTE,
        [
            (b"Host", b"git.corp"),
            (b"User-Agent", b"git/2.39"),
            (b"Authorization", b"Basic bWluZTptaW5l"),
            (b"Proxy-Authorization", b"Basic bWluZTptaW5l"),
            (b"Cookie", b"session=1"),
            (b"X-GitHub-Token", b"mine"),
            (b"Content-Type", b"application/x-git-upload-pack-request"),
            (b"Content-Encoding", b"gzip"),
            (b"Git-Protocol", b"version=2"),
            (b"Forwarded", b"for=127.0.0.1"),
        ],
    )
    basic = b"Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode())
    assert sent == [
        (b"host", b"127.0.0.1:3000"),
        (b"accept-encoding", b"identity"),
        (b"User-Agent", b"git/2.39"),
        (b"Content-Type", b"application/x-git-upload-pack-request"),
        (b"Content-Encoding", b"gzip"),
        (b"Git-Protocol", b"version=2"),
        (b"authorization", basic),
    ]
    assert secrets.asked == [("wrkspc_1", "sesn_1", "sesrsc_1")]


async def test_a_public_repository_is_asked_for_without_a_token():
    sent = await RepositoryAccess(Secrets(None)).request(FACTS, ROUTE, [])
    assert sent == [(b"host", b"127.0.0.1:3000"), (b"accept-encoding", b"identity")]


@pytest.mark.parametrize(("reason", "status"), [(Reason.UNAVAILABLE, 503), (Reason.INTERNAL, 403)])
async def test_without_its_token_nothing_is_sent(reason, status):
    secrets = Secrets(error=DroverError(reason, "the key provider is away"))
    with pytest.raises(RefusedError) as caught:
        await RepositoryAccess(secrets).request(FACTS, ROUTE, [])
    assert caught.value.refusal.status == status


def test_gits_own_answers_pass_as_they_are():
    kind = (b"Content-Type", b"application/x-git-upload-pack-result")
    told = RepositoryAccess(Secrets()).answer(
        200, [kind, (b"Set-Cookie", b"a=1"), (b"X-Echo", TOKEN.encode()), (b"Pragma", b"no-cache")]
    )
    assert (told.status, told.body) == (200, None)
    assert told.headers == [kind, (b"Pragma", b"no-cache")]


@pytest.mark.parametrize(
    ("status", "told_status", "beginning"),
    [
        (401, 403, UNAUTHENTICATED),
        (403, 403, FORBIDDEN),
        (404, 404, NOT_FOUND),
        (302, 403, "The git host redirects"),
        (301, 403, "The git host redirects"),
        (200, 502, "What answered there is no git host"),
        (204, 502, "What answered there is no git host"),
        (429, 429, "The git host answered with the status 429"),
        (500, 500, "The git host answered with the status 500"),
    ],
)
def test_of_other_answers_nothing_passes_but_a_word(status, told_status, beginning):
    echo = [
        (b"Content-Type", b"text/html"),
        (b"Location", b"https://evil.example/" + TOKEN.encode()),
        (b"WWW-Authenticate", b"Basic"),
        (b"X-Echo", TOKEN.encode()),
    ]
    told = RepositoryAccess(Secrets()).answer(status, echo)
    assert told.status == told_status
    assert told.body.decode().startswith(beginning)
    assert not any(TOKEN.encode() in value for _, value in told.headers)
    assert {name for name, _ in told.headers} == {b"content-type", b"cache-control"}
