"""`drover keys` against a gateway with a real registry behind it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from anthropic import AsyncAnthropic
from typer.testing import CliRunner

from cli.main import app
from gateway.main import build as build_gateway
from gateway.settings import GatewaySettings
from services.registry.main import RegistrySettings
from services.registry.main import build as build_registry
from tests.doubles.standing import PromptExit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping
    from pathlib import Path

KEY = "key-of-the-tests"
NOWHERE = "127.0.0.1:1"


@dataclass
class Stack:
    url: str
    client: AsyncAnthropic
    logs: list[MutableMapping[str, Any]] = field(repr=False)
    hosted: str = ""
    cloud: str = ""

    async def run(self, *arguments: str, url: str = "", key: str = KEY) -> tuple[int, str, str]:
        """The exit code, standard output and standard error of `drover keys …`."""
        environment = {
            "DROVER_URL": url or self.url,
            "DROVER_API_KEY": key,
            "COLUMNS": "300",
            "ANTHROPIC_API_KEY": None,
        }
        runner = CliRunner(env=environment)
        done = await asyncio.to_thread(runner.invoke, app, ["keys", *arguments])
        return done.exit_code, done.stdout, done.stderr


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    token = tmp_path / "token"
    token.write_text("a-token-for-tests")
    async with PromptExit() as exits:
        logs = exits.enter_context(structlog.testing.capture_logs())
        registry = await build_registry(
            RegistrySettings(data_dir=tmp_path, token_file=token, reflection=False), exits
        )
        gateway = await build_gateway(
            GatewaySettings(
                data_dir=tmp_path,
                token_file=token,
                listen="127.0.0.1:0",
                api_key=KEY,
                registry_address=registry.address,
                session_address=NOWHERE,
                hands_address=NOWHERE,
                vault_proxy_address=NOWHERE,
                brain_addresses=(NOWHERE,),
            ),
            exits,
        )
        url = f"http://{gateway.address}"
        async with AsyncAnthropic(base_url=url, api_key=KEY) as client:
            found = Stack(url, client, logs)
            environments = client.beta.environments
            hosted = await environments.create(name="farm", config={"type": "self_hosted"})
            found.hosted = hosted.id
            found.cloud = (await environments.create(name="cloud")).id
            yield found


async def test_quiet_prints_the_key_alone(stack: Stack) -> None:
    code, out, err = await stack.run("create", "--environment", stack.hosted, "--quiet")
    assert (code, err) == (0, "")
    assert out.startswith("drover_env_")
    assert out.count("\n") == 1
    assert len(out.strip()) == len("drover_env_") + 43
    assert any(line["event"] == "environment_key_created" for line in stack.logs)
    assert out.strip() not in repr(stack.logs)


async def test_a_key_is_listed_by_its_end_and_revoked_by_its_id(stack: Stack) -> None:
    here = ("--environment", stack.hosted)
    _, key, told = await stack.run("create", *here, "--name", "build [farm]")
    key_id = told.split()[0]
    assert key_id.startswith("envkey_")
    _, listed, _ = await stack.run("list", *here)
    assert key_id in listed
    assert f"…{key.strip()[-4:]}" in listed
    assert "build [farm]" in listed
    assert key.strip() not in listed

    code, out, _ = await stack.run("revoke", key_id, *here)
    assert (code, out.split()[:3]) == (0, [key_id, "revoked", "at"])
    assert await stack.run("list", *here) == (0, "", "")
    await stack.run("create", *here, "--name", "x\n\x1b[2Kenvkey_spoofed")
    _, listed, _ = await stack.run("list", *here)
    assert (listed.count("\n"), "\x1b" in listed) == (1, False)
    _, all_, _ = await stack.run("list", *here, "--all")
    assert f"{key_id}  " in all_
    assert "  revoked 20" in all_


async def test_what_a_user_can_do_something_about_is_told_in_one_line(stack: Stack) -> None:
    for arguments, url, key, said in (
        (("create", "--environment", "env_9"), "", KEY, "404: no environment 'env_9'"),
        (("create", "--environment", stack.cloud), "", KEY, "only self_hosted ones have workers"),
        (("create", "--environment", ""), "", KEY, "an empty id names no environment"),
        (("list", "--environment", "env_9"), "", KEY, "404: no environment 'env_9'"),
        (("revoke", "envkey_9", "--environment", stack.hosted), "", KEY, "404: no environment key"),
        (("revoke", "", "--environment", stack.hosted), "", KEY, "an empty id names no key"),
        (("create", "--environment", stack.hosted), "", "wrong", "401: the API key is not valid"),
        (("create", "--environment", "env_9"), f"http://{NOWHERE}", KEY, "does not answer"),
        (("create", "--environment", "env_9", "--scope", "read"), "", KEY, "--scope is for API"),
        (("list", "--environment", "env_9", "--workspace", "w"), "", KEY, "--workspace is for"),
        (("create", "--scope", "session:read"), "", KEY, "there is no area 'session'"),
        (("create", "--workspace", "b"), "", KEY, "400: workspace_id: must be wrkspc_ and"),
        (("create", "--expires-in", "soon"), "", KEY, "such as 90d"),
        (("create", "--expires-in", "999999w"), "", KEY, "--expires-in 999999w: "),
        (("revoke", "apikey_9"), "", KEY, "404: no API key 'apikey_9'"),
    ):
        code, out, err = await stack.run(*arguments, url=url, key=key)
        assert (code, out) == (1, "")
        assert said in err
        assert err.count("\n") == 1


async def test_an_api_key_is_made_for_a_workspace_with_scopes_an_end_and_a_limit(
    stack: Stack,
) -> None:
    told = ("--workspace", "wrkspc_b", "--scope", "agents:read", "--scope", "sessions:write")
    more = ("--name", "ci [b]", "--expires-in", "90d", "--requests-per-minute", "7")
    code, key, said = await stack.run("create", *told, *more)
    key_id = said.split()[0]
    assert code == 0
    assert key.startswith("drover_api_")
    assert key_id.startswith("apikey_")
    assert "opens wrkspc_b with agents:read, sessions:write until 20" in said
    assert key.strip() not in said

    _, listed, _ = await stack.run("list", "--workspace", "wrkspc_b")
    assert listed.count("\n") == 1
    for shown in (key_id, f"…{key.strip()[-4:]}", "agents:read,sessions:write", "7 a minute"):
        assert shown in listed
    assert "ci [b]" in listed
    assert "  expires 20" in listed
    assert key.strip() not in repr(stack.logs)

    async with AsyncAnthropic(base_url=stack.url, api_key=key.strip()) as client:
        assert [agent async for agent in client.beta.agents.list()] == []
    code, _, refused = await stack.run("list", key=key.strip())
    assert (code, "it needs admin" in refused) == (1, True)

    code, out, _ = await stack.run("revoke", key_id)
    assert (code, out.split()[:3]) == (0, [key_id, "revoked", "at"])
    assert await stack.run("list", "--workspace", "wrkspc_b") == (0, "", "")
    _, all_, _ = await stack.run("list", "--all")
    assert f"{key_id}  " in all_
    assert "  revoked 20" in all_


async def test_without_further_words_a_key_opens_all_of_the_callers_workspace(
    stack: Stack,
) -> None:
    _, admin, _ = await stack.run("create", "--scope", "admin", "--workspace", "wrkspc_c", "-q")
    code, key, said = await stack.run("create", key=admin.strip())
    assert (code, "opens wrkspc_c with write. " in said) == (0, True)
    async with AsyncAnthropic(base_url=stack.url, api_key=key.strip()) as client:
        made = await client.beta.environments.create(name="farm")
        assert [one.id async for one in client.beta.environments.list()] == [made.id]
