from __future__ import annotations

import pytest
from pydantic import ValidationError

from chassis.errors import CannotStartError
from chassis.settings import Settings


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"DROVER_{name.upper()}", raising=False)


def test_settings_come_from_prefixed_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("DROVER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("DROVER_BRAIN_ADDRESSES", "127.0.0.1:1, 127.0.0.1:2,")
    monkeypatch.setenv("DROVER_REFLECTION", "false")
    settings = Settings()
    assert settings.data_dir == tmp_path
    assert settings.brain_addresses == ("127.0.0.1:1", "127.0.0.1:2")
    assert settings.reflection is False


def test_token_lies_under_the_data_directory(tmp_path):
    settings = Settings(data_dir=tmp_path)
    settings.token_file.parent.mkdir()
    settings.token_file.write_text("s3cret\n")
    assert settings.token_file == tmp_path / "run" / "token"
    assert settings.token().open() == "s3cret"


def test_settings_do_not_change_after_they_were_read():
    with pytest.raises(ValidationError):
        Settings().listen = "0.0.0.0:80"


def test_secret_that_is_not_there_is_told_with_its_file(tmp_path):
    with pytest.raises(CannotStartError, match=f"{tmp_path}/run/token .*DROVER_TOKEN_FILE"):
        Settings(data_dir=tmp_path).token()


def test_service_that_nobody_has_placed_is_told_with_its_variable():
    with pytest.raises(CannotStartError, match="DROVER_SESSION_ADDRESS is not set"):
        Settings().address_of("session")


@pytest.mark.parametrize("listen", ["9464", ":9464", "localhost", "127.0.0.1:70000", "h:-1"])
def test_where_to_listen_is_a_host_and_a_port(monkeypatch, listen):
    monkeypatch.setenv("DROVER_METRICS_LISTEN", listen)
    with pytest.raises(ValidationError, match="must be host:port"):
        Settings()
