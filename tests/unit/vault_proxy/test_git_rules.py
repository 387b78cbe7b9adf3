"""Which requests are a repository's of the session, and which are not (V14)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.hosts import Host, parse_host
from drover.session.v1 import session_pb2
from services.vault_proxy.domain.session import SessionFacts
from services.vault_proxy.domain.target import Target
from services.vault_proxy.domain.verdict import GitRoute, Verdict
from services.vault_proxy.git.rules import RepositoryRules

UPSTREAMS = {"github.com": "https://github.com", "git.corp": "http://127.0.0.1:3000"}
FETCH, PUSH = "service=git-upload-pack", "service=git-receive-pack"


def facts(*urls):
    resources = [
        session_pb2.SessionResource(
            github_repository=session_pb2.GithubRepositoryResource(id=f"sesrsc_{number}", url=url)
        )
        for number, url in enumerate(urls)
    ]
    session = session_pb2.Session(id="sesn_1", resources=resources)
    return SessionFacts("wrkspc_default", "hand_1", session)


OURS = facts("https://github.com/acme/tools", "https://git.corp/acme/Docs")


def judge(method, path, query="", *, host="github.com", scheme="https", port=443, of=OURS):
    parsed = host if isinstance(host, Host) else parse_host(host)
    return RepositoryRules(UPSTREAMS).judge(of, Target(method, scheme, parsed, port, path, query))


@pytest.mark.parametrize("suffix", ["", ".git"])
@pytest.mark.parametrize(
    ("method", "below", "query"),
    [
        ("GET", "info/refs", FETCH),
        ("GET", "info/refs", PUSH),
        ("POST", "git-upload-pack", ""),
        ("POST", "git-receive-pack", ""),
    ],
)
def test_the_endpoints_of_a_repository_lead_to_its_upstream(suffix, method, below, query):
    route = judge(method, f"/acme/tools{suffix}/{below}", query)
    assert route == Verdict(git=GitRoute("sesrsc_0", "https://github.com"))
    route = judge(method, f"/acme/Docs{suffix}/{below}", query, host="GIT.CORP")
    assert route == Verdict(git=GitRoute("sesrsc_1", "http://127.0.0.1:3000"))


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        # other services and methods
        ("POST", "/acme/tools/git-upload-archive", ""),
        ("GET", "/acme/tools/info/refs", "service=git-upload-archive"),
        ("GET", "/acme/tools/info/refs", ""),
        ("GET", "/acme/tools/info/refs", f"{FETCH}&x=1"),
        ("GET", "/acme/tools/info/refs", f"x=1&{FETCH}"),
        ("GET", "/acme/tools/info/refs", "service=git%2Dupload-pack"),
        ("HEAD", "/acme/tools/info/refs", FETCH),
        ("POST", "/acme/tools/info/refs", FETCH),
        ("GET", "/acme/tools/git-upload-pack", ""),
        ("PUT", "/acme/tools/git-receive-pack", ""),
        ("POST", "/acme/tools/git-receive-pack", "x=1"),
        # the dumb protocol, large files, pages, APIs
        ("GET", "/acme/tools/HEAD", ""),
        ("GET", "/acme/tools/objects/info/packs", ""),
        ("POST", "/acme/tools/info/lfs/objects/batch", ""),
        ("GET", "/acme/tools", ""),
        ("GET", "/acme/tools/settings", ""),
        ("GET", "/repos/acme/tools", ""),
        ("GET", "/", ""),
        # other repositories, and other spellings
        ("GET", "/acme/other/info/refs", FETCH),
        ("GET", "/other/tools/info/refs", FETCH),
        ("GET", "/acme/Tools/info/refs", FETCH),
        ("GET", "/acme/tools.git.git/info/refs", FETCH),
        ("GET", "/acme/tools.wiki/info/refs", FETCH),
        ("GET", "/acme/tools/../other/info/refs", FETCH),
        ("GET", "/acme/other/../tools/info/refs", FETCH),
        ("GET", "/./acme/tools/info/refs", FETCH),
        ("GET", "//acme/tools/info/refs", FETCH),
        ("GET", "/acme//tools/info/refs", FETCH),
        ("GET", "/acme/tools//info/refs", FETCH),
        ("GET", "/acme/tools/info/refs/", FETCH),
        ("GET", "/acme/tools%2finfo/refs", FETCH),
        ("GET", "/acme/%74ools/info/refs", FETCH),
        ("GET", "acme/tools/info/refs", FETCH),
        ("GET", "/acme/tools;x/info/refs", FETCH),
        ("GET", "/x/acme/tools/info/refs", FETCH),
    ],
)
def test_all_else_of_a_git_host_is_judged_as_any_request(method, path, query):
    assert judge(method, path, query) is None


@pytest.mark.parametrize(
    "where",
    [
        {"host": "gitlab.com"},
        {"host": "api.github.com"},
        {"host": "github.com.evil.example"},
        {"host": "127.0.0.1"},
        {"port": 8443},
        {"scheme": "http", "port": 80},
        {"scheme": "http"},
    ],
)
def test_other_hosts_ports_and_schemes_are_no_repositorys(where):
    assert judge("GET", "/acme/tools/info/refs", FETCH, **where) is None
    assert judge("CONNECT", "", **where) is None


def test_a_tunnel_is_opened_to_hosts_of_the_sessions_repositories_alone():
    assert judge("CONNECT", "") == Verdict(git=GitRoute("", "https://github.com"))
    assert judge("CONNECT", "", of=facts("https://git.corp/acme/docs")) is None
    assert judge("CONNECT", "", of=facts()) is None
    assert judge("GET", "/acme/tools/info/refs", FETCH, of=facts()) is None


def test_a_repository_of_a_host_that_the_operator_has_dropped_leads_nowhere():
    of = facts("https://old.corp/acme/tools")
    assert judge("CONNECT", "", host="old.corp", of=of) is None
    assert judge("GET", "/acme/tools/info/refs", FETCH, host="old.corp", of=of) is None


_PIECES = st.sampled_from(
    [
        *("acme", "tools", "Docs", ".git", "info", "refs", "git-upload-pack", "git-receive-pack"),
        *("acme/tools/", "info/refs", "/", "//", "..", "%2f", ";", "?", "#", "\\", "\0", "x"),
    ]
)
_QUERIES = st.sampled_from(["", FETCH, PUSH, "service=git-upload-archive", f"{FETCH}&", "x"])


@given(
    st.sampled_from(["GET", "POST", "HEAD", "PUT", "get"]),
    st.lists(_PIECES, max_size=9).map("".join),
    _QUERIES,
)
def test_no_other_spelling_leads_to_the_upstream(method: str, path: str, query: str) -> None:
    route = judge(method, f"/{path}", query)
    known = path.startswith(("acme/tools/", "acme/tools.git/"))
    below = path.removeprefix("acme/tools").removeprefix(".git").removeprefix("/")
    asked = (method, below, query)
    expected = known and asked in {
        ("GET", "info/refs", FETCH),
        ("GET", "info/refs", PUSH),
        ("POST", "git-upload-pack", ""),
        ("POST", "git-receive-pack", ""),
    }
    assert (route is not None) == expected
