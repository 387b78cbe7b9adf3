"""Who may not start has changed nothing: no database is made or migrated, no sandbox ended."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import CannotStartError
from identity.settings import PeerSettings
from services.hands.main import build as build_hands
from services.hands.settings import HandsSettings
from services.registry.main import RegistrySettings
from services.registry.main import build as build_registry
from services.session.main import SessionSettings
from services.session.main import build as build_session
from services.vault_proxy.main import build as build_vault_proxy
from services.vault_proxy.settings import VaultProxySettings


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (build_registry, RegistrySettings),
        (build_session, SessionSettings),
        (build_hands, HandsSettings),
        (build_vault_proxy, VaultProxySettings),
    ],
)
@pytest.mark.parametrize("wrong", ["certificate", "address"])
async def test_process_looks_at_who_it_is_before_it_touches_anything(
    certificates: Path, tmp_path: Path, build: Any, settings: type[PeerSettings], wrong: str
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    # Nobody's that is built here.
    tls = certificates / "brain" if wrong == "certificate" else None
    told = {"data_dir": tmp_path / "data", "token_file": token, "tls_dir": tls}
    expected = "another one's directory" if tls else "DROVER_LISTEN is 0.0.0.0:0"
    async with AsyncExitStack() as stack:
        with pytest.raises(CannotStartError, match=expected):
            await build(settings(**told, listen="0.0.0.0:0"), stack)
    assert not (tmp_path / "data").exists()
