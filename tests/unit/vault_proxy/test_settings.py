from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from services.vault_proxy.settings import VaultProxySettings


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("EGRESS_ALLOW_PRIVATE", "127.0.0.1", ""),
        ("EGRESS_ALLOW_PRIVATE", "127.0.0.1:http", "write 127.0.0.1/32:9000"),
        ("EGRESS_RULES", "[]", ""),
        ("EGRESS_RULES", '[{"effect": "maybe", "hosts": ["a.example"]}]', "rule 0: effect"),
        ("PACKAGE_HOSTS", "pip=packages.corp.example", ""),
        ("PACKAGE_HOSTS", "conda=packages.corp.example", "must be a manager"),
        ("EGRESS_OPAQUE", "*.pinned.example", ""),
        ("EGRESS_OPAQUE", "*.com", "whole registry"),
        ("EGRESS_OWN_ADDRESSES", "gateway", "must be host:port"),
        ("GIT_HOSTS", "github.com", "github.com: "),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_with_the_reason(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"DROVER_{name}", value)
    if not says:
        VaultProxySettings()
        return
    with pytest.raises(ValidationError, match=says):
        VaultProxySettings()


def test_all_addresses_of_drover_that_are_known_are_drovers_own(tmp_path: Path) -> None:
    settings = VaultProxySettings(
        data_dir=tmp_path,
        listen="127.0.0.1:1",
        session_address="127.0.0.1:2",
        hands_address="127.0.0.1:3",
        registry_address="127.0.0.1:4",
        brain_addresses=("127.0.0.1:5", "127.0.0.1:6"),
        egress_own_addresses=("127.0.0.1:7",),
        egress_listen="unix:/run/egress.sock",
        database_url="postgresql://user:secret@database/drover",
    )
    listening = [one for one in settings.listening() if one]
    assert {f"127.0.0.1:{port}" for port in range(1, 8)} <= {*listening}
    assert any("@database/" in url for url in settings.databases("vault_proxy"))
