"""`drover ps` and `drover doctor --url` against a gateway with services behind it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import structlog
from typer.testing import CliRunner

from cli.main import app
from gateway.main import build
from tests.doubles.platform import Platform, running_platform
from tests.doubles.standing import PromptExit
from tests.integration.gateway.conftest import KEY, settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@dataclass
class Installation:
    url: str
    platform: Platform

    async def run(
        self, *arguments: str, key: str = KEY, columns: str | None = "300"
    ) -> tuple[int, str, str]:
        environment = {"DROVER_API_KEY": key, "COLUMNS": columns, "ANTHROPIC_API_KEY": None}
        told = [*arguments, "--url", self.url]
        done = await asyncio.to_thread(CliRunner(env=environment).invoke, app, told)
        return done.exit_code, done.stdout, done.stderr


@pytest.fixture
async def installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Installation]:
    async with PromptExit() as stack, running_platform() as platform:
        stack.enter_context(structlog.testing.capture_logs())
        server = await build(settings(tmp_path, platform, listen="0.0.0.0:0"), stack)
        monkeypatch.chdir(tmp_path)
        port = server.address.rpartition(":")[2]
        yield Installation(f"http://127.0.0.1:{port}", platform)


async def test_processes_and_sessions_are_shown_with_what_they_wait_for(
    installation: Installation,
) -> None:
    await installation.platform.stop("hands")
    code, shown, _ = await installation.run("ps")
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert code == 0
    assert "SERVING" in lines["vault_proxy"]
    assert installation.platform.addresses["session"] in lines["session"]
    assert "UNAVAILABLE" in lines["hands"]
    assert lines["sesn_1"].split()[1:4] == ["Shepherd", "[bold]", "running"]
    assert lines["sesn_1"].rstrip().endswith("its tools")
    told = json.loads((await installation.run("ps", "--json"))[1])
    assert [one["name"] for one in told["processes"] if one["state"] != "SERVING"] == ["hands"]
    assert told["sessions"][0]["brain"] == "brain-1"


@pytest.mark.parametrize("columns", [None, "60"])
async def test_an_id_is_never_broken_and_no_name_makes_a_line_of_its_own(
    installation: Installation, columns: str | None
) -> None:
    session = "sesn_011ChZFxmaB12YvGFHSoM2yM"
    working = installation.platform.operations.working
    working.id, working.agent_name = session, "x\nspoof \x1b[31m"
    code, shown, _ = await installation.run("ps", columns=columns)
    assert code == 0
    assert [line for line in shown.splitlines() if line.startswith(session)]
    assert not any(line.lstrip().startswith("spoof") for line in shown.splitlines())
    assert "\x1b" not in shown


async def test_an_installation_that_is_as_it_should_be_is_found_so(
    installation: Installation,
) -> None:
    code, shown, _ = await installation.run("doctor")
    assert code == 0, shown
    assert "clients can use it" in shown
    assert "opens wrkspc_default" in shown
    assert "come as they are sent" in shown
    assert "6 of 6 serve" in shown


async def test_what_is_not_ready_and_whose_key_is_not_valid_is_told_with_what_to_do(
    installation: Installation,
) -> None:
    await installation.platform.stop("registry")
    code, shown, _ = await installation.run("doctor", key="no-key")
    assert code == 1
    assert "registry cannot be reached" in shown
    assert "look at the log of registry" in shown
    assert "401: the API key is not valid" in shown
    assert "drover keys create" in shown


async def test_a_name_that_the_gateway_does_not_know_is_told_with_the_setting(
    installation: Installation,
) -> None:
    installation.url = installation.url.replace("127.0.0.1", "127.0.0.2")
    code, shown, _ = await installation.run("doctor")
    assert code == 1
    assert "add 127.0.0.2 to DROVER_ALLOWED_HOSTS" in shown


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1", "does not answer"),
        ("https://127.0.0.1:1", "does not answer"),
        ("http://no.such.name.invalid", "leads nowhere"),
        ("not a url", "does not answer"),
    ],
)
async def test_nothing_there_is_one_line_with_what_to_do(
    url: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, shown, _ = await Installation(url, Platform()).run("doctor")
    assert code == 1
    assert why in shown, shown
