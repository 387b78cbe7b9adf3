from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from chassis.errors import CannotStartError
from chassis.settings import DatabaseSettings, SecretText, Settings


class SessionSettings(DatabaseSettings):
    session_database_url: SecretText = None


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in SessionSettings.model_fields:
        monkeypatch.delenv(f"DROVER_{name.upper()}", raising=False)


def test_settings_come_from_prefixed_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("DROVER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("DROVER_BRAIN_ADDRESSES", "127.0.0.1:1, 127.0.0.1:2,")
    monkeypatch.setenv("DROVER_REFLECTION", "false")
    settings = Settings()
    assert settings.data_dir == tmp_path
    assert settings.brain_addresses == ("127.0.0.1:1", "127.0.0.1:2")
    assert settings.reflection is False


def test_token_and_database_lie_under_the_data_directory(tmp_path):
    settings = SessionSettings(data_dir=tmp_path)
    settings.token_file.parent.mkdir()
    settings.token_file.write_text("s3cret\n")
    assert settings.token_file == tmp_path / "run" / "token"
    assert settings.token().open() == "s3cret"
    assert settings.database("session").open() == f"sqlite:///{tmp_path}/session.db"


def test_database_url_of_a_relative_directory_is_absolute():
    url = SessionSettings(data_dir=Path("data")).database("session").open()
    assert url == f"sqlite:///{Path.cwd()}/data/session.db"


def test_given_database_url_wins_and_a_services_own_wins_over_it(monkeypatch):
    monkeypatch.setenv("DROVER_DATABASE_URL", " postgresql://host/drover\n")
    monkeypatch.setenv("DROVER_SESSION_DATABASE_URL", "")
    assert SessionSettings().database("session").open() == "postgresql://host/drover"
    monkeypatch.setenv("DROVER_SESSION_DATABASE_URL", "sqlite:////srv/session.db")
    assert SessionSettings().database("session").open() == "sqlite:////srv/session.db"


def test_one_sqlite_file_for_all_services_is_refused():
    with pytest.raises(CannotStartError, match="DROVER_SESSION_DATABASE_URL"):
        SessionSettings(database_url="sqlite:////srv/all.db").database("session")


def test_database_url_shows_in_no_text_of_the_settings():
    settings = SessionSettings(database_url="postgresql://u:sesame@host/drover")
    assert "sesame" not in repr(settings) + str(settings.model_dump())
    with pytest.raises(ValidationError) as refused:
        SessionSettings(session_database_url=["postgresql://u:sesame@host/drover"])
    assert "sesame" not in str(refused.value)


def test_settings_do_not_change_after_they_were_read():
    with pytest.raises(ValidationError):
        Settings().listen = "0.0.0.0:80"
