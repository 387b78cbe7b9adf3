from __future__ import annotations

import pytest
from pydantic import ValidationError

from chassis.settings import Settings


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"DROVER_{name.upper()}", raising=False)


def test_settings_come_from_prefixed_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("DROVER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("DROVER_REFLECTION", "false")
    settings = Settings()
    assert settings.data_dir == tmp_path
    assert settings.reflection is False


def test_settings_do_not_change_after_they_were_read():
    with pytest.raises(ValidationError):
        Settings().listen = "0.0.0.0:80"


@pytest.mark.parametrize("listen", ["9464", ":9464", "localhost", "127.0.0.1:70000", "h:-1"])
def test_where_to_listen_is_a_host_and_a_port(monkeypatch, listen):
    monkeypatch.setenv("DROVER_METRICS_LISTEN", listen)
    with pytest.raises(ValidationError, match="must be host:port"):
        Settings()
