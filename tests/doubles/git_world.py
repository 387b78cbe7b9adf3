"""Sandboxes, the egress proxy as it runs, and a git host: all real, but for what sessions are.

The git host is `git.corp` to sandboxes, and behind a certificate of the outside's authority.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from chassis.clock import SystemClock
from chassis.secret import Secret
from drover.session.v1.session_pb2 import Session
from services.hands.domain.repository import Repository
from services.hands.egress.grants import Grant, Grants
from services.hands.egress.network import Network
from services.hands.egress.proxy import ProxyAddress
from services.vault_proxy.git.access import RepositoryAccess
from services.vault_proxy.git.rules import RepositoryRules
from tests.doubles import egress
from tests.doubles.certificates import Authority
from tests.doubles.egress_outside import Granter, Outside
from tests.doubles.egress_proxy import Policy, World, proxied
from tests.doubles.git_server import GitServer, running_git_server

HOST = "git.corp"


class Tokens:
    """The tokens of repositories, by session and resource."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    async def of(self, _workspace_id: str, session_id: str, resource_id: str) -> Secret | None:
        token = self.kept.get((session_id, resource_id))
        return None if token is None else Secret(token)


class GitWorld(World):
    """What the proxy believes: grants begin with their session's id."""

    __slots__ = ()

    async def of_grant(self, grant: str) -> Policy:
        return await super().of_grant(grant.partition("/")[0])

    async def again(self, grant: str) -> Policy:
        return await self.of_grant(grant)


class _Granter(Granter):
    """As the vault proxy gives grants to sessions of the world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def authority(self, _session_id: str) -> Authority:
        return self._world.authority

    async def open(self, session_id: str, hand_id: str) -> Grant:
        grant = await super().open(session_id, hand_id)
        session = self._world.sessions[session_id]
        return Grant(
            grant.text,
            grant.renew_at,
            grant.ends_at,
            grant.ca_certificate,
            repositories=[
                Repository(
                    one.github_repository.id,
                    one.github_repository.url,
                    one.github_repository.mount_path,
                    one.github_repository.checkout.branch.name,
                    one.github_repository.checkout.commit.sha,
                )
                for one in session.resources
            ],
        )


class GitOutside(Outside):
    """The way out of sandboxes, to the proxy of a world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.granter = _Granter(world)

    async def network(self, directory: Path, tasks: asyncio.TaskGroup) -> Network:
        network = Network(
            directory,
            ProxyAddress(self.world.address),
            Grants(self.granter, tasks, SystemClock()),
            tasks,
            most=self.most,
            clock=SystemClock(),
            metrics=self.metrics,
        )
        await network.start()
        return network


class GitStage:
    """All of it, for a test: `server` has the repositories, `tokens` what opens them."""

    def __init__(self, world: World, server: GitServer, tokens: Tokens) -> None:
        self.world = world
        self.server = server
        self.tokens = tokens
        self.outside = GitOutside(world)

    def session(
        self,
        session_id: str,
        *names: str,
        token: str = "",
        allowed: Sequence[str] | None = (),
        branch: str = "",
        commit: str = "",
    ) -> Session:
        """A session with repositories; limited to no host, unless others are `allowed`."""
        made = egress.session(allowed=allowed)
        made.id = session_id
        for name in names:
            repository = made.resources.add().github_repository
            repository.id = f"sesrsc_{name.replace('/', '_')}"
            repository.url = f"https://{HOST}/{name}"
            repository.mount_path = f"/workspace/{name.partition('/')[2]}"
            if branch:
                repository.checkout.branch.name = branch
            if commit:
                repository.checkout.commit.sha = commit
            if token:
                self.tokens.kept[session_id, repository.id] = token
        self.world.sessions[session_id] = made
        return made


@asynccontextmanager
async def git_stage(place: Path) -> AsyncIterator[GitStage]:
    """A stage that ends with the block."""
    with ExitStack() as stack:
        world, tokens = GitWorld(), Tokens()
        file = place / "server.pem"
        file.write_text(world.outside.leaf("127.0.0.1"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        server = stack.enter_context(running_git_server(place / "git", tls=context))
        world.git_rules = RepositoryRules({HOST: server.url})
        world.git = RepositoryAccess(tokens)
        # That others' tunnels there are not looked into opens none for those who have a repository.
        world.opaque = [HOST]
        # Other ways to loopback are as closed as to any sandbox.
        world.private = ""
        async with proxied(world):
            stage = GitStage(world, server, tokens)
            stack.callback(stage.outside.files.cleanup)
            yield stage
