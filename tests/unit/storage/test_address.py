"""The URL of a database: what is understood, what is shown, and what is said of a wrong one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import MetaData, text

from chassis.errors import CannotStartError
from storage import open_database
from storage.address import Address, shown
from tests.doubles.databases import migrated, schema_in
from tests.doubles.ports import free_port
from tests.doubles.postgres import running_cluster


@pytest.fixture
def schema(tmp_path):
    return schema_in(tmp_path, MetaData())


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """An attempt may take as long as a busy machine makes it, and none is followed by another."""
    for patience in ("postgres.PATIENCE", "connections.PATIENCE", "postgres._FIRST_PAUSE"):
        monkeypatch.setattr(f"storage.{patience}", 60.0)
    monkeypatch.setattr("storage.migrate.PATIENCE", 0.0)
    for name in ("PGHOST", "PGPORT", "PGSSLMODE", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u:p@db:5432/drover", "db:5432/drover"),
        ("postgres://db/drover", "db/drover"),
        ("postgresql+asyncpg://u@db/drover", "db/drover"),
        ("postgresql://u:p@one:1,two:2/drover?target_session_attrs=any", "one:1,two:2/drover"),
        ("postgresql://u:p@[::1]:5432/drover", "[::1]:5432/drover"),
        ("postgresql:///drover?host=/run/postgresql", "/run/postgresql/drover"),
        ("postgresql:///drover?host=/run/postgresql&password=p", "/run/postgresql/drover"),
        ("postgresql:///drover", "the default host/drover"),
        ("postgresql://u:p%40ss%2Fword@db/drover", "db/drover"),
        ("sqlite:////srv/session.db", "/srv/session.db"),
    ],
)
def test_place_of_a_database_is_shown_without_its_password(url, place):
    assert shown(url) == place


def test_address_hides_what_the_driver_is_given():
    assert "sesame" not in repr(Address.parse("postgresql://u:sesame@db/drover"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "drover",
        "mysql://u:sesame@db/drover",
        "postgresql://u:sesame@db",
        "postgresql://u:sesame@db/",
        "postgresql://u:sesame@db:port/drover",
        "postgresql://u:ses@me/x@db/drover",
        "postgresql://u:sesame#1@db/drover",
        "postgresql://u:sesame@db/drover?sslmode",
        "postgresql://[u:sesame@db/drover",
    ],
)
def test_url_that_is_none_is_refused_without_repeating_it(url):
    with pytest.raises(CannotStartError) as refused:
        Address.parse(url)
    assert "sesame" not in str(refused.value)
    assert "postgresql://" in str(refused.value)


async def connects(url, schema):
    async with migrated(url, schema) as database:
        return await database.read(lambda connection: connection.scalar(text("SELECT 1"))) == 1


async def test_every_form_of_url_reaches_the_server(postgres, schema):
    url = postgres.new_database()
    name = url.rpartition("/")[2]
    folder = f"host={postgres.directory}&port={postgres.port}&user=drover"
    for form in (
        url.replace("postgresql://", "postgres://"),
        url.replace("postgresql://", "postgresql+asyncpg://"),
        f"postgresql:///{name}?{folder}",
        f"{url}?sslmode=disable",
        f"{url}?sslmode=prefer&work_mem=8MB",
        url.replace("127.0.0.1:", f"127.0.0.1:{free_port()},127.0.0.1:"),
    ):
        assert await connects(form, schema), form


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda url: f"{url}_none", "make it with `createdb`"),
        (lambda url: url.replace("//drover:", "//nobody:"), "refuses the user"),
        (lambda url: f"{url}?sslmode=require", "see sslmode"),
        (lambda url: f"{url}?sslmode=verify-full", "root certificate|sslrootcert"),
        (lambda url: f"{url}?colour=blue", "does not know a parameter of the URL.*colour"),
        (lambda url: url.replace("127.0.0.1", "db.invalid"), "host of .* is not known"),
        (lambda url: f"{url.rpartition(':')[0]}:{free_port()}/drover", "no PostgreSQL listens"),
        (lambda _: "postgresql:///drover?host=/nowhere", "no PostgreSQL listens at /nowhere"),
    ],
)
async def test_what_is_wrong_is_said_in_one_line(change, says, postgres, schema):
    url = change(postgres.new_database())
    with pytest.raises(CannotStartError, match=says) as refused:
        await connects(url, schema)
    with pytest.raises(CannotStartError, match=says):
        await open_database(url, schema)
    assert "\n" not in str(refused.value)
    assert ":" not in str(refused.value).partition("://")[2]


@pytest.fixture
def certificate():
    """A certificate that signs itself, for 127.0.0.1, and beside it the key, for the server."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        key, certificate = Path(folder) / "key.pem", Path(folder) / "cert.pem"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
                *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", str(key), "-out", str(certificate)),
            ],
            check=True,
            capture_output=True,
        )
        certificate.chmod(0o644)
        if os.geteuid() == 0:
            shutil.chown(key, "postgres")
        yield certificate


async def test_tls_is_used_and_checked_as_the_url_says(schema, certificate):
    key = certificate.with_name("key.pem")
    settings = {"ssl": "on", "ssl_key_file": str(key), "ssl_cert_file": str(certificate)}
    with running_cluster(**settings, fsync="off") as cluster:
        checked = f"{cluster.new_database()}?sslmode=verify-full&sslrootcert={certificate}"
        async with migrated(checked, schema) as database:
            asked = text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
            assert await database.read(lambda connection: connection.scalar(asked)) is True
        strange = checked.replace("127.0.0.1", "localhost")
        with pytest.raises(CannotStartError, match="no TLS with PostgreSQL at localhost"):
            await connects(strange, schema)


@pytest.mark.parametrize(
    "url", ["drover:hunter2@host/db", "hunter2", "hunter2@host", "hunter2://h/d"]
)
def test_url_without_a_scheme_is_refused_without_a_word_of_it(url):
    with pytest.raises(CannotStartError, match="no database engine") as refused:
        Address.parse(url)
    assert "hunter2" not in str(refused.value)
