from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

import pytest

from chassis.errors import CannotStartError, DroverError, Reason
from chassis.secret import Secret
from services.vault_proxy.crypto import file_keys
from services.vault_proxy.crypto.environment_keys import EnvironmentKeys
from services.vault_proxy.crypto.file_keys import FileKeys
from services.vault_proxy.main import VaultProxySettings
from tests.doubles.vault import environment_keys

if TYPE_CHECKING:
    from pathlib import Path

KEY = b"k" * 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "vault_proxy" / "keys"


async def test_file_is_made_once_for_its_owner_alone(file: Path) -> None:
    first, second = (FileKeys.open(file, make=True) for _ in range(2))
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    wrapped = await first.wrap(KEY, b"place")
    assert wrapped.key == "file:1"
    assert await second.unwrap(wrapped, b"place") == KEY
    assert KEY not in wrapped.blob


async def test_of_many_that_start_at_once_all_have_one_key(file: Path) -> None:
    opened = await asyncio.gather(
        *(asyncio.to_thread(FileKeys.open, file, make=True) for _ in range(8))
    )
    wrapped = await opened[0].wrap(KEY, b"")
    for keys in opened:
        assert await keys.unwrap(wrapped, b"") == KEY


async def test_new_key_is_taken_by_every_replica_and_old_ones_still_unwrap(file: Path) -> None:
    here, there = (FileKeys.open(file, make=True) for _ in range(2))
    old = await there.wrap(KEY, b"")
    assert await here.renew() == "file:2"
    new = await here.wrap(KEY, b"")
    assert await there.unwrap(new, b"") == KEY
    assert (await there.wrap(KEY, b"")).key == "file:2"
    assert await here.unwrap(old, b"") == KEY
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in file.parent.iterdir()) == ["keys"]


async def test_file_that_is_gone_or_cannot_be_written_is_named_by_whoever_rotates(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = FileKeys.open(file, make=True)
    with monkeypatch.context() as disk:
        disk.setattr(file_keys, "_write", _full)
        with pytest.raises(DroverError) as refused:
            await keys.renew()
    assert refused.value.reason is Reason.UNAVAILABLE
    assert f"cannot write {file} (No space left on device)" in refused.value.message
    file.unlink()
    with pytest.raises(DroverError, match="restore the file from its backup") as refused:
        await keys.renew()
    assert refused.value.reason is Reason.UNAVAILABLE


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_key_unwraps_for_its_context_alone(file: Path) -> None:
    keys = FileKeys.open(file, make=True)
    wrapped = await keys.wrap(KEY, b"here")
    with pytest.raises(DroverError) as refused:
        await keys.unwrap(wrapped, b"there")
    assert refused.value.reason is Reason.INTERNAL


def test_missing_file_is_not_made_where_secrets_are(file: Path) -> None:
    with pytest.raises(CannotStartError, match="restore the file from its backup"):
        FileKeys.open(file, make=False)
    assert not file.exists()


A, B = "A" * 43 + "=", "B" * 43 + "="


@pytest.mark.parametrize("text", ["", "1 short\n", f"x {A}", "1\n", f"1 {A}\n1 {B}", f"1 {A}é"])
def test_damaged_file_keeps_it_from_starting_without_showing_it(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(text)
    with pytest.raises(CannotStartError, match="is damaged") as refused:
        FileKeys.open(file, make=True)
    assert "AAAA" not in str(refused.value)


def test_file_that_others_may_read_keeps_it_from_starting(file: Path) -> None:
    FileKeys.open(file, make=True)
    file.chmod(0o640)
    with pytest.raises(CannotStartError, match="chmod 600"):
        FileKeys.open(file, make=True)


async def test_last_key_of_the_environment_wraps_and_none_is_made_there() -> None:
    keys = EnvironmentKeys(environment_keys(1, 2))
    assert await keys.current() == "environment:2"
    with pytest.raises(DroverError, match="DROVER_VAULT_KEYS") as refused:
        await keys.renew()
    assert refused.value.reason is Reason.UNIMPLEMENTED


@pytest.mark.parametrize("value", ["1", "1:abc", "a:b", "sesame"])
def test_broken_setting_keeps_it_from_starting_without_showing_it(value: str) -> None:
    with pytest.raises(CannotStartError, match="DROVER_VAULT_KEYS: key 1 must be") as refused:
        EnvironmentKeys(Secret(value))
    assert "sesame" not in str(refused.value)


async def test_former_providers_still_unwrap(tmp_path: Path) -> None:
    before = VaultProxySettings(data_dir=tmp_path).keyring(make=True)
    wrapped = await before.wrap(KEY, b"")
    after = VaultProxySettings(
        data_dir=tmp_path, vault_key_provider="environment", vault_keys=environment_keys(1)
    ).keyring(make=False)
    assert await after.current() == "environment:1"
    assert await after.unwrap(wrapped, b"") == KEY
    again = await after.rewrap(wrapped, b"")
    assert again.key == "environment:1"
    with pytest.raises(DroverError, match="does not have"):
        await before.unwrap(again, b"")


@pytest.mark.parametrize(
    ("provider", "names"),
    [("environment", "DROVER_VAULT_KEYS"), ("transit", "DROVER_VAULT_TRANSIT_ADDRESS")],
)
def test_provider_that_is_not_set_up_is_named(tmp_path: Path, provider: str, names: str) -> None:
    settings = VaultProxySettings(data_dir=tmp_path, vault_key_provider=provider)  # type: ignore[arg-type]
    with pytest.raises(CannotStartError, match=names):
        settings.keyring(make=True)
    assert not (tmp_path / "vault_proxy").exists()


@pytest.mark.parametrize(
    "address",
    [
        "http://openbao:8200",
        "HTTP://10.1.2.3:8200",
        "http://127.0.0.1.example.com",
        "http://localhost@openbao:8200",
        "openbao:8200",
        "https://",
        "http://[::1",
    ],
)
def test_transit_engine_that_would_be_sent_keys_in_the_clear_keeps_it_from_starting(
    tmp_path: Path, address: str
) -> None:
    with pytest.raises(CannotStartError, match=r"DROVER_VAULT_TRANSIT_ADDRESS.*https://"):
        _over_transit(tmp_path, address).keyring(make=True)


@pytest.mark.parametrize(
    "address",
    ["https://openbao:8200", "http://127.0.0.1:8200", "http://[::1]:8200", "http://localhost:8200"],
)
def test_transit_engine_is_asked_under_tls_or_on_loopback(tmp_path: Path, address: str) -> None:
    _over_transit(tmp_path, address).keyring(make=True)


def _over_transit(directory: Path, address: str) -> VaultProxySettings:
    return VaultProxySettings(
        data_dir=directory,
        vault_key_provider="transit",
        vault_transit_address=address,
        vault_transit_token=Secret("token"),
    )
