"""MCP servers with certificates: verified for the name, whatever address that leads to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chassis.errors import DroverError
from tests.doubles.certificates import Authority
from tests.doubles.mcp_server import McpServer, running_mcp_server
from tests.doubles.mcp_world import mcp_world

NAME = "mcp.example.com"


@dataclass(frozen=True, slots=True)
class Secure:
    """The server, and the authority that signed its certificate."""

    server: McpServer
    ca_file: Path

    def url(self, host: str = NAME) -> str:
        return f"https://{host}:{self.server.port}/private/mcp"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority("Outside")
    (folder / "ca.pem").write_text(authority.certificate)
    (folder / "server.pem").write_text(authority.leaf(NAME))
    pem = folder / "server.pem"
    with running_mcp_server(certificate=pem, key=pem) as running:
        running.allow("tok-in-tls")
        yield Secure(running, folder / "ca.pem")


async def test_a_server_of_a_known_authority_is_called(secure: Secure) -> None:
    async with mcp_world(secure.server.port, ca_file=secure.ca_file) as world:
        world.bearer(secure.url(), "tok-in-tls")
        answer = await world.servers.call(
            world.facts(secure.url()), "srv", "echo", '{"text": "hi"}', "c"
        )
    assert answer.content[0].text.text == "hi"


@pytest.mark.parametrize(("host", "known"), [(NAME, False), ("other.example.com", True)])
async def test_a_server_that_cannot_prove_its_name_gets_nothing(
    secure: Secure, host: str, known: bool
) -> None:
    secure.server.forget()
    ca_file = secure.ca_file if known else None
    async with mcp_world(secure.server.port, ca_file=ca_file) as world:
        world.bearer(secure.url(host), "tok-in-tls")
        with pytest.raises(DroverError) as refused:
            await world.servers.call(world.facts(secure.url(host)), "srv", "echo", "{}", "c")
    assert refused.value.error_code == "mcp_connection_failed"
    assert "certificate" in refused.value.message
    assert not secure.server.report()["seen"]
