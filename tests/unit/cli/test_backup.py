"""`drover backup` and `drover restore` of files: whole, or not at all."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from chassis.secret import Secret
from cli.backup import contents, restoring
from cli.backup.contents import Dump
from cli.main import app
from storage.address import Address

SECRET = "sesame"  # noqa: S105  # nobody's


class Place:
    """A data directory, and where its back-up goes."""

    def __init__(self, root: Path) -> None:
        self.data, self.to, self.keys, self.root = root / "data", root / "to", root / "keys", root
        for directory in ("files/ab", "hands/workspaces/sesn_1/workspace", "hands/spares", "run"):
            (self.data / directory).mkdir(parents=True)
        (self.data / "files" / "ab" / "obj_1").write_bytes(b"bytes")
        notes = self.data / "hands" / "workspaces" / "sesn_1" / "workspace" / "notes"
        notes.write_text("kept")
        (notes.parent / "link").symlink_to("notes")
        if os.geteuid() == 0:
            os.chown(notes, 200_007, 200_007)
        with closing(sqlite3.connect(self.data / "registry.db")) as database:
            database.execute("CREATE TABLE numbers (n)")
        (self.data / "vault_proxy").mkdir()
        (self.data / "vault_proxy" / "keys").write_text(SECRET)
        (self.data / "run" / "token").write_text(SECRET)

    def run(self, *arguments: str | Path, **environment: str) -> tuple[int, str]:
        told = {"COLUMNS": "300", "DROVER_DATABASE_URL": None, "DROVER_DATA_DIR": None}
        ended = CliRunner(env={**told, **environment}).invoke(app, [*map(str, arguments)])
        return ended.exit_code, ended.output

    def backup(self, *more: str | Path) -> tuple[int, str]:
        return self.run("backup", self.to, "--data", self.data, *more)

    def restore(self, *more: str | Path) -> tuple[int, str]:
        return self.run("restore", self.to, "--data", self.root / "new", *more)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def rows(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [row[0] for row in database.execute("SELECT n FROM numbers ORDER BY n")]


def test_what_is_committed_is_in_the_back_up_while_the_database_is_open(place: Place) -> None:
    with closing(sqlite3.connect(place.data / "session.db")) as open_database:
        open_database.execute("PRAGMA journal_mode = WAL")
        open_database.execute("CREATE TABLE numbers (n)")
        open_database.execute("INSERT INTO numbers VALUES (1), (2)")
        open_database.commit()
        open_database.execute("INSERT INTO numbers VALUES (3)")  # not committed
        code, told = place.backup("--keys", place.keys)
        assert code == 0, told
    made = {path.name for path in place.to.iterdir()}
    databases = {"registry.db", "session.db"}
    assert made == {"manifest.json", *databases, "files.tar.gz", "hands.tar.gz"}
    assert "left out: the database of hands" in told
    assert (place.to.stat().st_mode & 0o077, (place.to / "session.db").stat().st_mode & 0o077) == (
        0,
        0,
    )
    assert not any(SECRET.encode() in path.read_bytes() for path in place.to.iterdir())

    code, told = place.restore("--keys", place.keys)
    assert code == 0, told
    new = place.root / "new"
    assert rows(new / "session.db") == [1, 2]
    assert (new / "files" / "ab" / "obj_1").read_bytes() == b"bytes"
    notes = new / "hands" / "workspaces" / "sesn_1" / "workspace" / "notes"
    before = place.data / "hands" / "workspaces" / "sesn_1" / "workspace" / "notes"
    assert (notes.read_text(), notes.stat().st_uid) == ("kept", before.stat().st_uid)
    assert (notes.parent / "link").is_symlink()
    assert not (new / "hands" / "spares").exists()
    assert (new / "vault_proxy" / "keys").read_text() == SECRET
    for directory in (place.to, place.keys, new):
        assert all(path.stat().st_mode & 0o077 == 0 for path in within(directory)), directory


def within(directory: Path) -> list[Path]:
    """What of a back-up or its restoration holds secrets: all but what sandboxes have."""
    there = [directory, *directory.rglob("*")]
    return [path for path in there if not {"hands", "files"} & {*path.relative_to(directory).parts}]


def test_only_keys_are_taken_from_their_directory(place: Place) -> None:
    assert place.backup("--keys", place.keys)[0] == 0
    (place.keys / "registry.db").write_text("another's")
    place.keys.chmod(0o755)
    code, told = place.restore("--keys", place.keys)
    assert code == 0, told
    assert rows(place.root / "new" / "registry.db") == []
    assert (place.root / "new").stat().st_mode & 0o077 == 0


def test_all_goes_where_the_settings_say_and_nothing_there_is_written_over(place: Place) -> None:
    files, database = place.root / "my files", place.root / "a?b#c.db"
    (place.data / "files").rename(files)
    (place.data / "registry.db").rename(database)
    (place.data / "vault_proxy" / "keys").rename(place.root / "keys-of-ours")
    settings = {
        "DROVER_FILES_URL": f"file://{quote(str(files))}",
        "DROVER_REGISTRY_DATABASE_URL": f"sqlite:///{database}",
        "DROVER_VAULT_KEYS_FILE": str(place.root / "keys-of-ours"),
    }
    backup = "backup", place.to, "--data", place.data, "--keys", place.keys
    restore = "restore", place.to, "--data", place.root / "new", "--keys", place.keys
    code, told = place.run(*backup, **settings)
    assert code == 0, told
    assert (place.keys / "vault_proxy" / "keys").read_text() == SECRET

    before = {path: path.read_bytes() for path in place.root.rglob("*") if path.is_file()}
    code, told = place.run(*restore, **settings)
    assert (code, "my files is not empty" in told) == (1, True)
    shutil.rmtree(files)
    assert "c.db is there already" in place.run(*restore, **settings)[1]
    database.unlink()
    (place.root / "keys-of-ours").write_text("others")
    assert "is another key than the back-up's" in place.run(*restore, **settings)[1]
    assert not (place.root / "new").exists()
    (place.root / "keys-of-ours").unlink()
    code, told = place.run(*restore, **settings)
    assert code == 0, told
    assert {path: path.read_bytes() for path in before} == before

    (place.data / "files").mkdir()
    bucket = settings | {"DROVER_FILES_URL": "s3://bucket/prefix"}
    assert "DROVER_FILES_URL must name a directory" in place.run(*restore, **bucket)[1]


def test_failure_takes_nothing_along_that_was_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = place.root / "registry.db"
    (place.data / "registry.db").rename(database)
    (place.data / "session.db").write_bytes(database.read_bytes())
    code, told = place.run(
        "backup",
        place.to,
        "--data",
        place.data,
        DROVER_REGISTRY_DATABASE_URL=f"sqlite:///{place.root}/none",
    )
    assert code == 0, told

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "files")

    monkeypatch.setattr(restoring, "_unpack", full)
    (place.root / "files").mkdir()
    told = place.run(
        "restore",
        place.to,
        "--data",
        place.root / "new",
        DROVER_REGISTRY_DATABASE_URL=f"sqlite:///{database}",
    )[1]
    assert "No space left" in told
    assert not (place.root / "new").exists()
    assert database.exists()


def test_no_back_up_is_made_of_itself(place: Place) -> None:
    inside = place.data / "hands" / "kept"
    for told in ((inside,), (place.to, "--keys", inside)):
        code, said = place.run("backup", *told, "--data", place.data)
        assert (code, "name a directory elsewhere" in said) == (1, True)
    assert not inside.exists()


def test_directory_without_any_database_is_no_installation(place: Place) -> None:
    (place.data / "registry.db").unlink()
    code, told = place.backup()
    assert (code, place.to.exists()) == (1, False)
    assert "has no databases: name the directory of a stack with --data" in told


def test_keys_are_left_out_unless_they_are_asked_for(place: Place) -> None:
    code, told = place.backup()
    assert code == 0
    assert "left out: the keys of stored credentials" in told
    assert place.restore()[0] == 0
    assert not (place.root / "new" / "vault_proxy").exists()


def test_nothing_is_written_over(place: Place) -> None:
    assert place.backup()[0] == 0
    assert "is there already" in place.backup()[1]
    (place.root / "new").mkdir()
    (place.root / "new" / "mine").touch()
    code, told = place.restore()
    assert (code, [path.name for path in (place.root / "new").iterdir()]) == (1, ["mine"])
    assert "is not empty" in told


def test_damaged_or_strange_back_ups_restore_nothing(place: Place) -> None:
    assert "is no back-up" in place.run("restore", place.data, "--data", place.root / "new")[1]
    assert place.backup()[0] == 0
    archive = place.to / "files.tar.gz"
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-1])
    assert "files.tar.gz is damaged" in place.restore()[1]
    archive.unlink()
    assert "files.tar.gz is missing" in place.restore()[1]
    manifest = json.loads((place.to / "manifest.json").read_text())
    (place.to / "manifest.json").write_text(json.dumps({**manifest, "drover_backup": 99}))
    assert "made by another release" in place.restore()[1]
    assert not (place.root / "new").exists()


def test_failure_leaves_no_back_up_and_nothing_half_restored(place: Place) -> None:
    (place.data / "session.db").write_text("this is no database, but it is long enough" * 100)
    code, told = place.backup()
    assert code == 1, told
    assert not place.to.exists()
    assert [path.name for path in place.root.iterdir()] == ["data"]


def test_wrong_places_are_told(place: Place) -> None:
    told = place.run("backup", place.to, "--data", place.root / "nowhere")[1]
    assert "is no directory" in told
    assert place.backup()[0] == 0
    told = place.run(
        "restore", place.to, "--data", place.root / "new", DROVER_DATABASE_URL="postgresql://h/d"
    )[1]
    assert "it has SQLite files: unset DROVER_DATABASE_URL" in told
    assert "has no keys" in place.restore("--keys", place.keys)[1]


def test_databases_of_one_server_are_dumped_together_and_others_apart(tmp_path: Path) -> None:
    environment = {
        "DROVER_DATABASE_URL": "postgresql://h/one",
        "DROVER_VAULT_PROXY_DATABASE_URL": "postgresql://h/two",
        "DROVER_HANDS_DATABASE_URL": "sqlite:////x/hands.db",
    }
    files, dumps = contents.databases(environment, tmp_path)
    assert [one.service for one in files] == ["hands"]
    assert [one.name for one in dumps] == ["session+registry.dump", "vault_proxy.dump"]


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        (
            "postgresql://u:se%2Bs%40me@h:5/d?sslmode=require",
            "postgresql://u@h:5/d?sslmode=require",
        ),
        (
            "postgresql:///d?host=/run/x&user=u&password=se%2Bs%40me",
            "postgresql:///d?host=/run/x&user=u",
        ),
    ],
)
def test_no_argument_of_a_program_has_the_password(url: str, bare: str) -> None:
    told, password = contents._apart(Address.parse(url).dsn)
    assert (told.replace("%2F", "/"), password) == (bare, "se+s@me")


def test_database_that_is_not_empty_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "run_on", lambda *_: "drover_session\ndrover_x\n")
    dump = Dump(("session", "hands"), Address.parse(Secret("postgresql://h/d").open()))
    with pytest.raises(Exception, match=r"h/d has drover_session already"):
        restoring._check_databases([dump.name], [dump])
