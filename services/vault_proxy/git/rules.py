"""Which requests belong to a repository of the session, and so to the git proxy (ADR 24).

Three endpoints of git's smart HTTP protocol do (gitprotocol-http(5)). All else of a git host, the
dumb protocol, archives, pages and APIs among it, is judged as any other request, and never gets a
token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from services.vault_proxy.domain.verdict import GitRoute, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.domain.target import Target

_PORT: Final = 443
_ENDPOINTS: Final = frozenset(
    {
        ("GET", "info/refs", "service=git-upload-pack"),
        ("GET", "info/refs", "service=git-receive-pack"),
        ("POST", "git-upload-pack", ""),
        ("POST", "git-receive-pack", ""),
    }
)
"""Method, path below the repository, and query, exactly as git's clients send them."""


class RepositoryRules:
    """See `domain.ports.GitRules`. `upstreams` are the git hosts' (`catalogue.repositories`)."""

    def __init__(self, upstreams: Mapping[str, str]) -> None:
        self._upstreams = upstreams

    def judge(self, facts: SessionFacts, target: Target) -> Verdict | None:
        """The way to a repository's upstream; `None` for what is not git's business."""
        host = target.host.text
        if target.scheme != "https" or target.port != _PORT or host not in self._upstreams:
            return None
        if target.method == "CONNECT":
            ours = any(_host(url) == host for _, url in _repositories(facts))
            # To be looked into, whatever the host: what else is asked for in there is not git's.
            return Verdict(git=GitRoute("", self._upstreams[host])) if ours else None
        # No decoding, no dots: what is spelt otherwise is another path.
        before, _, path = target.path.partition("/")
        owner, _, rest = path.partition("/")
        name, _, below = rest.partition("/")
        if before or (target.method, below, target.query) not in _ENDPOINTS:
            return None
        wanted = f"https://{host}/{owner}/{name.removesuffix('.git')}"
        for resource_id, url in _repositories(facts):
            if url == wanted:
                return Verdict(git=GitRoute(resource_id, self._upstreams[host]))
        return None


def _host(url: str) -> str:
    return url.removeprefix("https://").partition("/")[0]


def _repositories(facts: SessionFacts) -> list[tuple[str, str]]:
    """The session's repositories: their ids and canonical URLs."""
    found = (one.github_repository for one in facts.session.resources)
    return [(repository.id, repository.url) for repository in found if repository.id]
