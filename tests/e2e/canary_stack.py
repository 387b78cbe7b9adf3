"""A stack with one credential of each kind, peers that each is for, and a thief's host.

Every secret has the same word in it, the canary, so that one search finds what is left of any.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from anthropic import Anthropic, DefaultHttpxClient

from cli.launched import LaunchedStack
from cli.stack.ports import LOOPBACK
from tests.doubles.docker_engine import Engine
from tests.doubles.git_server import GitServer, running_git_server
from tests.doubles.marks import Mark
from tests.doubles.mcp_server import McpServer, running_mcp_server
from tests.doubles.otlp_collector import Collector
from tests.doubles.outside_hosts import Outside, running_outside
from tests.doubles.web_site import WebSite, running_web_site
from tests.e2e.driving import MODEL, TOOLSET
from tests.e2e.mcp_stack import served
from tests.e2e.monitoring import free_row
from tests.e2e.stack import Stack, running_stack

REPOSITORY = "https://git.corp/acme/tools"
SERVICES = ("registry", "session", "vault_proxy", "hands", "gateway", "brain-1")
_CLIENT, _METHOD = "drover", "client_secret_basic"


@dataclass
class Secrets:
    """The values, each with the canary inside."""

    canary: Mark

    def __post_init__(self) -> None:
        word = self.canary.word
        self.variable = f'sk-{word}/+"\\Zq'
        self.bearer = f"mcp-{word}-bearer"
        self.client = f"cs-{word}:+/secret"
        self.repository = f"ghp_{word}Repo"
        self.search = f"search-{word}"
        self.key = f"{word}vault-key-material-0123456789"[:32].encode()


@dataclass
class CanaryStack:
    """The stack and its peers. `answers` are all that the API has answered to `client`s."""

    stack: Stack
    outside: Outside
    mcp: McpServer
    git: GitServer
    site: WebSite
    spans: Collector
    secrets: Secrets
    metrics: list[str]
    answers: list[bytes] = field(default_factory=list)

    @property
    def bearer_url(self) -> str:
        """The MCP server that a fixed token opens."""
        return self.mcp.url("/private/json/mcp")

    @property
    def oauth_url(self) -> str:
        """The MCP server that an OAuth token opens."""
        return self.mcp.url("/private/mcp")

    def forget(self) -> None:
        """As if nobody had been asked anything yet."""
        self.stack.model.reset()
        self.mcp.forget()
        self.site.forget()
        self.answers.clear()
        self.git.requests.clear()
        for host in (self.outside.bound, self.outside.thief):
            host.heard.clear()

    def client(self) -> Anthropic:
        """The official client; what it is answered is kept."""

        def keep(answer: httpx2.Response) -> None:
            if "event-stream" not in answer.headers.get("content-type", ""):
                self.answers.append(repr(answer.headers).encode() + answer.read())

        recording = DefaultHttpxClient(event_hooks={"response": [keep]})
        return self.stack.client(http_client=recording, max_retries=0)

    def vault(self, client: Anthropic) -> Any:
        """A vault with a credential for each of the peers."""
        kept = self.secrets
        self.mcp.challenge("")
        self.mcp.token_fault(None)
        tokens = self.mcp.grant(_CLIENT, client_secret=kept.client, method=_METHOD)
        vault = client.beta.vaults.create(display_name="Ada")
        auths: list[Any] = [
            {
                "type": "environment_variable",
                "secret_name": "API_KEY",
                "secret_value": kept.variable,
                "networking": {"type": "limited", "allowed_hosts": [self.outside.bound.name]},
            },
            {"type": "static_bearer", "mcp_server_url": self.bearer_url, "token": kept.bearer},
            {
                "type": "mcp_oauth",
                "mcp_server_url": self.oauth_url,
                "access_token": tokens.access_token,
                "refresh": {
                    "client_id": _CLIENT,
                    "refresh_token": tokens.refresh_token,
                    "token_endpoint": self.mcp.token_endpoint,
                    "token_endpoint_auth": {"type": _METHOD, "client_secret": kept.client},
                },
            },
        ]
        for auth in auths:
            client.beta.vaults.credentials.create(vault.id, auth=auth)
        return vault

    def session(
        self, client: Anthropic, kind: str, vault_id: str, *, limited: bool = False, **more: Any
    ) -> Any:
        """A session in a sandbox of that kind with all of it."""
        servers = [
            served("fixed", self.bearer_url),
            served("oauth", self.oauth_url),
            served("odd", self.mcp.fault("/drop")),
        ]
        toolsets: list[Any] = [TOOLSET, *(server["toolset"] for server in servers)]
        agent = client.beta.agents.create(
            name=more.pop("name", "clerk"),
            model=MODEL,
            tools=toolsets,
            mcp_servers=[server["server"] for server in servers],
        )
        networking: Any = {"type": "unrestricted"}
        if limited:
            hosts = [self.outside.bound.name]
            networking = {"type": "limited", "allowed_hosts": hosts, "allow_mcp_servers": True}
        environment = client.beta.environments.create(
            name=f"desk-{uuid.uuid4().hex}",
            config={"type": "cloud", "networking": networking},
            metadata={"drover.sandbox": kind},
        )
        repository: Any = {
            "type": "github_repository",
            "url": REPOSITORY,
            "authorization_token": self.secrets.repository,
        }
        return client.beta.sessions.create(
            agent=agent.id,
            environment_id=environment.id,
            vault_ids=[vault_id],
            resources=[repository],
            **more,
        )

    def read(self, path: str, **query: Any) -> httpx2.Response:
        """A GET of the API, kept as all answers are."""
        answer = httpx2.get(
            f"{self.stack.url}{path}", params=query, headers=self.stack.headers, timeout=60
        )
        self.answers.append(repr(answer.headers).encode() + answer.content)
        return answer

    def trail(self, session_id: str) -> list[dict[str, Any]]:
        """The session's audit trail, the newest first."""
        entries: list[dict[str, Any]] = []
        page: dict[str, str] = {}
        while True:
            told = self.read("/v1/vault_audit", session_id=session_id, limit=100, **page).json()
            entries += told["data"]
            if not told.get("next_page"):
                return entries
            page = {"page": told["next_page"]}


@contextmanager
def canary_stack(data: Path, peers: Path, engine: Engine | None) -> Iterator[CanaryStack]:
    """Runs all of it at the debug level, traced and measured; with sandboxes of both kinds."""
    secrets = Secrets(Mark.drawn("cnry"))
    with (
        Collector() as spans,
        running_outside(peers) as outside,
        running_mcp_server() as mcp,
        running_git_server(peers / "git") as git,
        running_web_site() as site,
    ):
        mcp.tokens(mark=secrets.canary.word)
        mcp.allow(secrets.bearer)
        tools = git.add("acme/tools", {"a.txt": "as it was"}, tokens=[secrets.repository])
        _tells(tools.path / "hooks" / "pre-receive", secrets.repository)
        git.add("acme/other", {"b.txt": "not yours"}, tokens=[secrets.repository])
        first = free_row(len(SERVICES))
        # An operator who opens Drover's own ports by mistake opens nothing.
        own = range(first, first + len(SERVICES))
        ports = (mcp.port, mcp.faults_port, site.port, *own)
        opened = ",".join([outside.opening, *(f"{LOOPBACK}/32:{port}" for port in ports)])
        with running_stack(
            data,
            brains=1,
            launcher=LaunchedStack,  # its environments and its memory are searched
            DROVER_EGRESS_ALLOW_PRIVATE=opened,
            DROVER_EGRESS_CA_FILE=str(outside.ca_file),
            DROVER_GIT_HOSTS=f"git.corp={git.url}",
            DROVER_SEARCH_PROVIDER="searxng",
            DROVER_SEARCH_URL=site.url,
            DROVER_SEARCH_API_KEY=secrets.search,
            DROVER_VAULT_KEY_PROVIDER="environment",
            DROVER_VAULT_KEYS=f"1:{base64.b64encode(secrets.key).decode()}",
            DROVER_LOG_LEVEL="debug",
            DROVER_METRICS_LISTEN=f"{LOOPBACK}:{first}",
            DROVER_HANDS_SPARE_SANDBOXES="0",
            **({"DOCKER_HOST": engine.host} if engine else {}),
            **spans.settings,
        ) as stack:
            scraped = [f"http://{LOOPBACK}:{port}/metrics" for port in own]
            yield CanaryStack(stack, outside, mcp, git, site, spans, secrets, scraped)


def _tells(hook: Path, token: str) -> None:
    """A hook of the host's that prints what nobody should: plain, and as it was sent."""
    sent = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho 'you came with {token}, {sent}' >&2\n")
    hook.chmod(0o755)
