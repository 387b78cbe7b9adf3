from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.main import build
from gateway.settings import GatewaySettings
from tests.doubles.platform import TOKEN, Platform, running_platform
from tests.doubles.standing import PromptExit

KEY = "key-of-the-tests"
BETA = {"anthropic-beta": "managed-agents-2026-04-01"}


@dataclass
class Gateway:
    url: str
    platform: Platform
    http: httpx2.AsyncClient


def settings(data_dir: Path, platform: Platform, **given: Any) -> GatewaySettings:
    (data_dir / "run").mkdir(exist_ok=True)
    (data_dir / "run" / "token").write_text(TOKEN.open())
    at = platform.addresses
    chosen = {
        "data_dir": data_dir,
        "listen": "127.0.0.1:0",
        "api_key": KEY,
        "session_address": at["session"],
        "registry_address": at["registry"],
        "hands_address": at["hands"],
        "vault_proxy_address": at["vault_proxy"],
        "brain_addresses": (at["brain-1"], at["brain-2"]),
        "stall_seconds": 30.0,
        "resume_seconds": 30.0,
    }
    return GatewaySettings(**(chosen | given))


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No service that answers counts as one that is away because the machine is busy."""
    monkeypatch.setattr("gateway.stored_keys._WAIT", 30.0)
    monkeypatch.setattr("gateway.upstream._HEALTH_SECONDS", 30.0)
    monkeypatch.setattr("gateway.processes._PATIENCE", 30.0)


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with running_platform() as running:
        yield running


@pytest.fixture
def gateway_settings() -> dict[str, Any]:
    """What a test module or test sets otherwise."""
    return {}


@pytest.fixture
async def gateway(
    tmp_path: Path, platform: Platform, gateway_settings: dict[str, Any]
) -> AsyncIterator[Gateway]:
    async with PromptExit() as stack:
        server = await build(settings(tmp_path, platform, **gateway_settings), stack)
        url = f"http://{server.address}"
        headers = {"x-api-key": KEY, **BETA}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=30) as http:
            yield Gateway(url, platform, http)
