"""What the doctor finds out about the vault proxy: what `drover up` would refuse."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.doctor import vault as doctor
from cli.doctor.finding import Finding, Verdict
from services.vault_proxy import examine as process
from services.vault_proxy.settings import VaultProxySettings
from services.vault_proxy.store.schema import SCHEMA
from services.vault_proxy.store.wrapped_keys import SqlWrappedKeys
from services.vault_proxy.vault.installation import installation_key
from storage import open_database

KEY = base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examining process, without a process."""

    def run(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patched, pytest.MonkeyPatch.context() as out:
            for name, value in environment.items():
                patched.setenv(name, value)
            printed: list[str] = []
            out.setattr("sys.stdout.write", printed.append)
            code = process.main()
        return subprocess.CompletedProcess([], code, "".join(printed), "")

    monkeypatch.setattr(process, "keep_memory_closed", lambda: None)
    monkeypatch.setattr(doctor, "_run", run)


def examined(data: Path, **environ: str) -> list[Finding]:
    return doctor.vault(data, 8080, environ)


def with_database(data: Path) -> None:
    """A data directory that a vault proxy has run in."""

    async def run() -> None:
        settings = VaultProxySettings(data_dir=data)
        database = await open_database(settings.database("vault_proxy").open(), SCHEMA)
        await installation_key(SqlWrappedKeys(database), settings.keyring(make=True))
        await database.close()

    data.mkdir(exist_ok=True)
    asyncio.run(run())


def seen(data: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in data.rglob("*") if one.is_file()}


def test_what_is_made_at_the_first_start_is_neither_asked_for_nor_made(tmp_path: Path) -> None:
    """In a process of its own, as it is run."""
    findings = examined(tmp_path / "data")
    assert [one.verdict for one in findings] == [Verdict.FINE, Verdict.FINE]
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("here")
def test_database_whose_keys_are_there_is_fine_and_left_as_it_is(tmp_path: Path) -> None:
    with_database(tmp_path)
    before = seen(tmp_path)
    assert all(one.verdict is Verdict.FINE for one in examined(tmp_path))
    assert seen(tmp_path) == before


@pytest.mark.usefixtures("here")
def test_database_without_its_keys_is_told_and_none_are_made(tmp_path: Path) -> None:
    with_database(tmp_path)
    keys = tmp_path / "vault_proxy" / "keys"
    keys.unlink()
    found = examined(tmp_path)[0]
    assert found.verdict is Verdict.MISSING
    assert "restore the file from its backup" in found.detail
    assert "DROVER_VAULT_KEYS_FILE" in found.detail
    assert not keys.exists()


@pytest.mark.usefixtures("here")
def test_keys_of_another_database_are_told(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with_database(tmp_path / name)
    other = tmp_path / "two" / "vault_proxy" / "keys"
    found = examined(tmp_path / "one", DROVER_VAULT_KEYS_FILE=str(other))[0]
    assert found.verdict is Verdict.MISSING
    assert "are these the keys of this database?" in found.detail


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("environ", "which", "why"),
    [
        ({"DROVER_VAULT_KEY_PROVIDER": "environment"}, 0, "DROVER_VAULT_KEYS is not set"),
        ({"DROVER_VAULT_KEYS": "1:secret"}, 0, "DROVER_VAULT_KEYS: key 1 must be"),
        ({"DROVER_VAULT_KEY_PROVIDER": "transit"}, 0, "DROVER_VAULT_TRANSIT_ADDRESS is not set"),
        ({"DROVER_VAULT_KEYS_FILE": f"{__file__}/keys"}, 0, "DROVER_VAULT_KEYS_FILE"),
        ({"DROVER_EGRESS_CA_FILE": "/nonexist"}, 1, "DROVER_EGRESS_CA_FILE cannot be used"),
        ({"DROVER_EGRESS_CA_FILE": __file__}, 1, "holds no certificate"),
    ],
)
def test_setting_that_the_vault_proxy_would_not_start_with_is_named(
    environ: dict[str, str], which: int, why: str, tmp_path: Path
) -> None:
    findings = examined(tmp_path, **environ)
    assert findings[which].verdict is Verdict.MISSING
    assert findings[1 - which].verdict is Verdict.FINE
    assert why in findings[which].detail
    assert "secret" not in findings[which].detail.replace("stored secret", "")


@pytest.mark.usefixtures("here")
def test_keys_of_the_environment_that_can_be_used_are_fine(tmp_path: Path) -> None:
    environ = {"DROVER_VAULT_KEY_PROVIDER": "environment", "DROVER_VAULT_KEYS": f"1:{KEY}"}
    assert all(one.verdict is Verdict.FINE for one in examined(tmp_path, **environ))


@pytest.mark.usefixtures("here")
def test_what_other_checks_tell_of_is_not_told_twice(tmp_path: Path) -> None:
    assert examined(tmp_path, DROVER_VAULT_AUDIT_DAYS="soon") == []
    assert examined(tmp_path, DROVER_VAULT_PROXY_DATABASE_URL="mysql://x") == []
    assert examined(tmp_path, DROVER_METRICS_LISTEN="x") == []
