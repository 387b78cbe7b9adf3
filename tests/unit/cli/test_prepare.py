"""What the containers of an installation share is made once, each for whom it is for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from chassis.errors import CannotStartError
from cli.prepare import main, prepare
from identity.credentials import Credentials
from identity.folder import Folder
from identity.table import Caller


def made(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_everything_is_made_and_nobody_else_reads_what_is_secret(tmp_path: Path) -> None:
    prepare(tmp_path, {})
    for name in ("secret/token", "keys/api_key", "database/pgpass", "ca/ca.key", "brain/tls.key"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600, name
    password = (tmp_path / "postgres" / "password").read_text()
    assert (tmp_path / "database" / "pgpass").read_text() == f"*:*:*:drover:{password}\n"
    assert (tmp_path / "postgres" / "superuser").read_text() not in {"", password}
    for caller in Caller:
        assert Credentials.read(tmp_path / caller, caller).caller is caller


def test_what_is_there_stays(tmp_path: Path) -> None:
    prepare(tmp_path, {})
    before = made(tmp_path)
    prepare(tmp_path, {})
    assert made(tmp_path) == before


def test_certificates_that_end_soon_are_made_anew_and_said_to_be(tmp_path: Path) -> None:
    Folder(tmp_path).create(datetime.now(UTC), days=30)
    before = made(tmp_path)
    assert set(prepare(tmp_path, {})) == set(Caller)
    assert prepare(tmp_path, {}) == []
    after = made(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {
        f"{caller}/{file}" for caller in Caller for file in ("tls.crt", "tls.key")
    }


def test_key_of_the_settings_is_the_first_key_and_may_be_another_later(tmp_path: Path) -> None:
    key = tmp_path / "keys" / "api_key"
    prepare(tmp_path, {"DROVER_API_KEY": "the-operators-own-key"})
    assert key.read_text() == "the-operators-own-key\n"
    prepare(tmp_path, {"DROVER_API_KEY": "another-of-the-operators"})
    assert key.read_text() == "another-of-the-operators\n"
    prepare(tmp_path, {"DROVER_API_KEY": ""})
    assert key.read_text() == "another-of-the-operators\n"


@pytest.mark.parametrize("key", ["short", "with spaces in between it", "ключ-от-всех-дверей"])
def test_key_that_cannot_be_one_is_told_of_before_anything_is_made(
    tmp_path: Path, key: str
) -> None:
    with pytest.raises(CannotStartError, match=r"DROVER_API_KEY in \.env .* choose another"):
        prepare(tmp_path, {"DROVER_API_KEY": key})
    assert made(tmp_path) == {}


def test_what_is_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DROVER_API_KEY", "short")
    monkeypatch.setattr("sys.argv", ["prepare", str(tmp_path)])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert capsys.readouterr().err.startswith("drover: DROVER_API_KEY in .env must be")


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a file in the place of a directory")
    with pytest.raises(CannotStartError, match=r"secret.* cannot be written"):
        prepare(tmp_path, {})
