"""`drover certs`, as an operator runs it: what it says comes with what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from identity.table import Caller


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


def certs(*arguments: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["certs", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


def test_certificates_are_made_once_and_shown(tmp_path):
    made = certs("create", tmp_path)
    assert all(str(tmp_path / caller) in made for caller in Caller)
    assert "`drover certs renew`" in certs("create", tmp_path, code=1)
    assert "nothing is missing" in certs("create", tmp_path, "--if-missing")
    shown = certs("show", tmp_path)
    assert all(f"{caller} " in shown for caller in Caller)
    assert "PRIVATE" not in made + shown


def test_those_that_end_soon_are_made_anew(tmp_path):
    certs("create", tmp_path, "--days", "20")
    assert "19 days left" in certs("show", tmp_path)
    assert "none ends within 10 days" in certs("renew", tmp_path, "--within", "10")
    told = certs("renew", tmp_path)
    assert "made anew: gateway, session" in told
    assert "Restart every process" in told
    assert "364 days left" in certs("show", tmp_path)


def test_each_step_of_a_rotation_says_the_next(tmp_path):
    certs("create", tmp_path)
    assert "--step trust" in certs("rotate", tmp_path)
    assert "Restart every process" in (told := certs("rotate", tmp_path, "--step", "trust"))
    assert told == certs("rotate", tmp_path)
    assert f"drover certs rotate {tmp_path} --step sign" in told
    assert "--step retire" in certs("rotate", tmp_path, "--step", "sign")
    assert "--step retire" in certs("show", tmp_path)
    assert "nobody trusts it" in certs("rotate", tmp_path, "--step", "retire")
    assert "--step trust" in certs("rotate", tmp_path, "--step", "sign", code=1)


def test_directory_without_certificates_says_how_there_are_some(tmp_path):
    for command in (("show",), ("renew", "--all"), ("rotate", "--step", "trust")):
        told = certs(command[0], tmp_path / "none", *command[1:], code=1)
        assert "drover certs create" in told


@pytest.mark.parametrize(
    "asked", [("create", "--days", "99999999"), ("renew", "--within", "99999999999")]
)
def test_time_that_no_calendar_has_is_refused(tmp_path, asked):
    assert "3650" in certs(asked[0], tmp_path, *asked[1:], code=2)
