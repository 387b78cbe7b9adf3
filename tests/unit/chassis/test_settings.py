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
