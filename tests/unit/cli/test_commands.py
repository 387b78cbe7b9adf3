from __future__ import annotations

import csv
import io
import re
import socket
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cli.demo import EXAMPLE, question
from cli.doctor import machine, sandbox
from cli.doctor.finding import Verdict
from cli.main import app
from cli.settings import settings_of, shown_value
from cli.stack.installation import Installation
from cli.target import DEFAULT_URL, NoTargetError, resolve

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = ["up", "run", "tail", "demo", "doctor", "config", "version"]


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))
    return result.exit_code, result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    code, output = invoke(command, "--help")
    assert code == 0
    assert "Usage:" in output


def test_version_is_that_of_the_package() -> None:
    code, output = invoke("version")
    assert code == 0
    assert re.fullmatch(r"\d+\.\d+\S*\n", output)


def test_stack_is_refused_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, output = invoke("up", "--data", str(tmp_path), "--port", str(port))
    assert code == 1
    assert f"127.0.0.1:{port} is in use: choose another port with --port" in output


def test_task_without_a_stack_says_how_to_get_one(tmp_path: Path) -> None:
    code, output = invoke("run", "task", "--data", str(tmp_path))
    assert code == 1
    assert "start a stack with `drover up`" in output


def test_stack_that_does_not_answer_is_told_as_one_line(tmp_path: Path) -> None:
    code, output = invoke(
        "tail", "sesn_1", "--url", "http://127.0.0.1:9", "--api-key", "k", "--data", str(tmp_path)
    )
    assert code == 1
    assert "is `drover up` running?" in output
    assert "Traceback" not in output


def test_target_is_the_stack_of_the_data_directory_unless_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoTargetError):
        resolve(None, None, tmp_path)
    installation = Installation(tmp_path)
    installation.run.mkdir()
    installation.key_file.write_text("drv_kept\n")
    assert resolve(None, None, tmp_path).url == DEFAULT_URL
    installation.address_file("gateway").write_text("127.0.0.1:1234\n")
    kept = resolve(None, None, tmp_path)
    assert (kept.url, kept.key) == ("http://127.0.0.1:1234", "drv_kept")
    named = resolve("http://elsewhere/", "mine", tmp_path)
    assert (named.url, named.key) == ("http://elsewhere", "mine")
    assert "mine" not in repr(named)


def test_settings_are_listed_with_those_who_read_them() -> None:
    settings = {setting.variable: setting for setting in settings_of(["services.registry.main"])}
    assert settings["DROVER_LISTEN"].readers == ["all"]
    assert settings["DROVER_LOG_LEVEL"].default == "info"
    assert all(setting.description for setting in settings.values())


def test_secrets_are_masked_where_settings_are_shown() -> None:
    assert shown_value("DROVER_API_KEY", "drv_secret") == "***"
    assert shown_value("ANTHROPIC_AUTH_TOKEN", "secret") == "***"
    assert shown_value("DROVER_DATABASE_URL", "postgresql://u:p@db/x") == "postgresql://***@db/x"
    assert shown_value("DROVER_LOG_LEVEL", "debug") == "debug"
    assert shown_value("DROVER_API_KEY", None) == ""


def test_doctor_says_which_model_agents_will_use() -> None:
    assert machine.model({}).verdict is Verdict.OPTIONAL
    assert "rehearsal" in machine.model({}).detail
    with_key = machine.model({"ANTHROPIC_API_KEY": "sk-secret"})
    assert with_key.verdict is Verdict.FINE
    assert "sk-secret" not in with_key.detail
    assert machine.model({"ANTHROPIC_BASE_URL": "http://m"}).verdict is Verdict.FINE


def test_doctor_asks_the_docker_engine_itself(tmp_path: Path) -> None:
    finding = machine.docker({"DOCKER_HOST": f"unix://{tmp_path / 'none.sock'}"})
    assert finding.verdict is Verdict.OPTIONAL


def test_doctor_starts_a_real_sandbox_with_the_bundled_bubblewrap() -> None:
    assert sandbox.bundled_bubblewrap() is not None
    assert Verdict.FINE in {finding.verdict for finding in sandbox.bubblewrap()}


def test_doctor_without_any_bubblewrap_says_that_tools_cannot_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox.shutil, "which", lambda _name: None)
    monkeypatch.setattr(sandbox, "bundled_bubblewrap", lambda: None)
    findings = sandbox.bubblewrap()
    assert findings[-1].verdict is Verdict.MISSING
    assert findings[-1].remedy


def test_example_has_the_answers_that_its_page_gives() -> None:
    rows = list(csv.DictReader(io.StringIO(EXAMPLE.read_text(encoding="utf-8"))))
    gross, kept, by_month, by_city = Counter(), Counter(), Counter(), Counter()
    for row in rows:
        revenue = round(float(row["revenue"]) * 100)
        assert revenue == int(row["quantity"]) * round(float(row["unit_price"]) * 100)
        gross[row["product"]] += revenue
        kept[row["product"]] += revenue if row["returned"] == "no" else 0
        by_month[row["date"][:7]] += revenue
        by_city[row["city"]] += revenue
    assert (len(rows), gross.total()) == (148, 5431_50)
    assert by_month.most_common(1) == [("2026-05", 1422_00)]
    assert by_city.most_common(1) == [("Lisbon", 2075_00)]
    assert gross.most_common()[1] == ("Gooseneck Kettle", 888_00)
    assert kept.most_common()[5][0] == "Gooseneck Kettle"
    kettles = [row["returned"] for row in rows if row["product"] == "Gooseneck Kettle"]
    assert (kettles.count("yes"), len(kettles)) == (7, 12)


def test_demo_sends_the_whole_example() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") in question()
