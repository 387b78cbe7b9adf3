from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from cli.stack.installation import Installation, InUseError
from identity.table import Caller

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    made = Installation(tmp_path / "data")
    os.close(made.acquire())
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directory_of_a_live_stack_is_refused_and_its_pid_named(tmp_path: Path) -> None:
    lock = Installation(tmp_path).acquire()
    with pytest.raises(InUseError, match=rf"in use by a running stack \(pid {os.getpid()}\)"):
        Installation(tmp_path).acquire()
    os.close(lock)
    os.close(Installation(tmp_path).acquire())


def test_secrets_can_be_read_by_their_owner_alone(installation: Installation) -> None:
    installation.ensure_token()
    installation.ensure_key(None)
    assert mode(installation.token_file) == mode(installation.key_file) == 0o600
    assert mode(installation.run) == mode(installation.root) == 0o700


def test_secrets_outlive_a_restart(installation: Installation) -> None:
    token, key = installation.ensure_token(), installation.ensure_key(None)
    again = Installation(installation.root)
    assert again.ensure_token().matches(token.open())
    assert again.ensure_key(None).matches(key.open())
    assert key.open().startswith("drv_")


def test_key_that_is_wanted_replaces_the_one_kept(installation: Installation) -> None:
    installation.ensure_key(None)
    assert installation.ensure_key("mine").open() == "mine"
    assert installation.key_file.read_text() == "mine\n"
    installation.key_file.write_text("first\nsecond\n")
    assert [installation.ensure_key(key).open() for key in (None, "first")] == ["first"] * 2
    assert installation.key_file.read_text() == "first\nsecond\n"
    assert mode(installation.key_file) == 0o600


def test_what_a_dead_stack_left_is_cleared_but_not_its_secrets(installation: Installation) -> None:
    installation.ensure_token()
    installation.pid_file("session").write_text("1")
    installation.address_file("session").write_text("127.0.0.1:1")
    installation.clear()
    assert {path.name for path in installation.run.iterdir()} == {"lock", "token"}


def test_certificates_are_new_at_every_start_and_nothing_kept_could_make_another(
    installation: Installation,
) -> None:
    installation.ensure_token()
    installation.certify()
    before = installation.peers("session")
    assert before.tls is not None
    installation.certify()
    after = installation.peers("session")
    assert after.tls is not None
    assert not {before.tls.authorities, before.tls.key} & {after.tls.authorities, after.tls.key}
    assert {path.parent.name for path in installation.root.rglob("*.key")} == set(Caller)


def test_logs_of_the_last_run_are_kept_aside(installation: Installation) -> None:
    installation.log_file("session").write_text("old")
    installation.rotate_logs()
    assert not installation.log_file("session").exists()
    assert (installation.logs / "session.log.1").read_text() == "old"
