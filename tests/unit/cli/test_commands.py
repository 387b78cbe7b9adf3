from __future__ import annotations

import csv
import io
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.demo import EXAMPLE, question
from cli.doctor import machine, sandbox
from cli.doctor.finding import Verdict
from cli.main import app
from cli.settings import settings_of, shown_value
from cli.stack.installation import Installation
from cli.stack.ports import url_of
from cli.target import DEFAULT_URL, NoTargetError, resolve
from services.brain.model.access import Provider

_FULL = """
from cli import main
from cli.terminal import Terminal

@main.app.command()
def talk() -> None:
    with main.told_errors():
        Terminal().say("text")

main.app(["talk"])
"""
_STEADY = """
import sys
from cli.terminal import SteadyTerminal
terminal = SteadyTerminal()
terminal.say("text")
terminal.say("more")
print("went on", file=sys.stderr)
"""
# The importer of what a command needs is interrupted in the middle.
_LOADING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts us may ignore it
from cli import main

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "anthropic":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["drover", "run", "task"]
main.main()
"""

COMMANDS = ["up", "run", "tail", "keys", "skills", "demo", "doctor", "migrate", "config", "version"]


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))
    return result.exit_code, result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    code, output = invoke(command, "--help")
    assert code == 0
    assert "Usage:" in output


@pytest.mark.parametrize("spelling", ["version", "--version"])
def test_version_is_that_of_the_package(spelling: str) -> None:
    code, output = invoke(spelling)
    assert code == 0
    assert re.fullmatch(r"\d+\.\d+\S*\n", output)


def test_stack_is_refused_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, output = invoke("up", "--data", str(tmp_path), "--port", str(port))
    assert code == 1
    assert f"127.0.0.1:{port} is in use: choose another port with --port" in output


def test_address_that_cannot_be_had_is_told_from_one_in_use(tmp_path: Path) -> None:
    code, output = invoke("up", "--data", str(tmp_path), "--host", "192.0.2.1", "--port", "9")
    assert code == 1
    assert "cannot listen at 192.0.2.1:9" in output


@pytest.mark.parametrize("command", [["up"], ["run", "x"], ["tail", "x"], ["doctor"]])
@pytest.mark.parametrize("name", ["", __file__])
def test_data_directory_must_be_one(command: list[str], name: str) -> None:
    code, output = invoke(*command, "--data", name)
    assert code == 2
    assert "Invalid value for '--data'" in output


@pytest.mark.parametrize("command", ["up", "doctor"])
def test_port_must_be_one(command: str) -> None:
    code, output = invoke(command, "--port", "65536")
    assert code == 2
    assert "Invalid value for '--port'" in output


@pytest.mark.parametrize("task", ["", "  \n", "\udcff"])
@pytest.mark.parametrize("command", [["run"], ["demo", "--task"]])
def test_task_that_says_nothing_is_refused_before_anything_starts(
    command: list[str], task: str
) -> None:
    code, output = invoke(*command, task)
    assert code == 1
    assert output.startswith("drover: the task is ")


def test_session_without_an_id_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "api_key").write_text("k")
    code, output = invoke("tail", "", "--url", "http://127.0.0.1:9", "--data", str(tmp_path))
    assert (code, output) == (1, "drover: an empty id names no session\n")


def test_server_of_another_kind_is_told_as_one_line(tmp_path: Path) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404, explain="<b>\x1b[2J</b>")

        def log_message(self, *_arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        code, output = invoke(
            "tail", "sesn_1", "--url", url, "--api-key", "k", "--data", str(tmp_path)
        )
        server.shutdown()
    assert code == 1
    assert output.startswith("drover: 404: ")
    assert output.endswith("does not speak Drover's API\n")
    assert output.count("\n") == 1


def test_output_that_cannot_be_written_is_told_as_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", _FULL], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == b"drover: the output: No space left on device"
    assert b"Traceback" not in done.stderr


def test_stack_goes_on_where_its_output_cannot_be_written() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", _STEADY], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"went on\n")


def test_ctrl_c_while_a_command_is_loading_ends_it_quietly() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADING], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1:1", "http://127.0.0.1:1"),
        ("0.0.0.0:1", "http://127.0.0.1:1"),
        ("[::]:1", "http://[::1]:1"),
        ("[::1]:1", "http://[::1]:1"),
        ("localhost:1", "http://localhost:1"),
    ],
)
def test_stack_is_called_at_an_address_that_it_answers_to(address: str, url: str) -> None:
    assert url_of(address) == url


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
    installation.key_file.write_text("drv_kept\ndrv_another\n")
    with pytest.raises(NoTargetError, match="no stack runs over"):
        resolve(None, None, tmp_path)
    assert resolve(None, "mine", tmp_path).url == DEFAULT_URL
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
    hidden = machine.model({"ANTHROPIC_BASE_URL": "https://me:sesame@m:8443/v1"})
    assert "https://m:8443" in hidden.detail
    assert "sesame" not in hidden.detail
    assert machine.model({"ANTHROPIC_BASE_URL": "nonsense"}).verdict is Verdict.OPTIONAL


def test_doctor_says_whether_the_list_of_models_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    assert machine.models_file({}) == []
    file.write_text('{"models": {"mine": {"context_window": "large"}}}')
    (broken,) = machine.models_file({"DROVER_MODELS_FILE": str(file)})
    assert broken.verdict is Verdict.MISSING
    assert "models.mine.context_window" in broken.detail
    file.write_text('{"models": {"mine": {"context_window": 4096}}}')
    (usable,) = machine.models_file({"DROVER_MODELS_FILE": str(file)})
    assert usable.verdict is Verdict.FINE


def test_doctor_says_which_cloud_serves_the_models_and_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = machine.model({"DROVER_MODEL_PROVIDER": "bedrok"})
    assert unknown.verdict is Verdict.MISSING
    assert "bedrock" in unknown.remedy
    assert {"anthropic", *machine.CLOUDS} == set(Provider)
    of_bedrock = {"DROVER_MODEL_PROVIDER": "bedrock", "ANTHROPIC_API_KEY": "sk-secret"}
    assert machine.model(of_bedrock).verdict is Verdict.FINE
    assert "bedrock" in machine.model(of_bedrock).detail
    assert "credentials are tried first by a request" in machine.model(of_bedrock).detail
    monkeypatch.setattr(machine, "find_spec", lambda _name: None)
    lacking = machine.model(of_bedrock)
    assert lacking.verdict is Verdict.MISSING
    assert "drover[bedrock]" in lacking.remedy


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
    assert sandbox.bubblewrap("docker")[-1].verdict is Verdict.OPTIONAL


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
