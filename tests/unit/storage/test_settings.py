from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from chassis.errors import CannotStartError
from chassis.settings import SecretText
from storage.settings import DatabaseSettings


class SessionSettings(DatabaseSettings):
    session_database_url: SecretText = None


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in SessionSettings.model_fields:
        monkeypatch.delenv(f"DROVER_{name.upper()}", raising=False)


def test_database_lies_in_the_data_directory(tmp_path):
    url = SessionSettings(data_dir=tmp_path).database("session").open()
    assert url == f"sqlite:///{tmp_path}/session.db"


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
