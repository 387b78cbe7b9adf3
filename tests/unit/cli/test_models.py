from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from catalogue.models import SHIPPED, load
from cli.main import app


def drover(*words: str, **environment: str):
    return CliRunner().invoke(app, ["models", *words], env=environment)


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "models.json"
    price = {"input": 0.5, "output": 1, "cache_read": 0, "cache_write_5m": 1, "cache_write_1h": 1}
    file.write_text(json.dumps({"models": {"qwen3:30b": {"price": price}}}))
    return file


def test_models_lists_every_model_with_its_prices_uncut():
    shown = drover().stdout
    for model_id in load(None).models:
        assert model_id in shown
    (haiku,) = [line for line in shown.splitlines() if line.startswith("claude-haiku-5-5 ")]
    assert haiku.split()[1:] == ["1M", "128K", "0.1", "0.5", "0.01", "0.125", "0.2"]
    assert "prompts above 100K" in shown


def test_models_as_json_is_a_file_that_says_the_same(tmp_path):
    copy = tmp_path / "copy.json"
    copy.write_text(drover("--json").stdout)
    assert load(copy).models == load(None).models
    assert json.loads(copy.read_text())["models"].keys() == (
        json.loads(SHIPPED.read_text())["models"].keys()
    )


def test_models_shows_what_an_id_is_taken_for(own):
    shown = drover("us.anthropic.claude-opus-5-5-v1:0", "somebody-elses").stdout.splitlines()
    assert shown[1].startswith("claude-opus-5-5 ")
    assert shown[2].startswith("somebody-elses (not listed)")
    assert shown[2].split()[3:] == ["200K", "32K", *"–––––"]
    for told in (
        drover("qwen3:30b", "--file", str(own)),
        drover("qwen3:30b", DROVER_MODELS_FILE=str(own)),
    ):
        assert told.stdout.splitlines()[1].split()[3] == "0.5"


def test_models_says_in_one_line_what_is_wrong_with_a_file(tmp_path):
    file = tmp_path / "models.json"
    file.write_text('{"models": {"m": {"prise": 1}}}')
    told = drover("--file", str(file))
    assert told.exit_code == 1
    assert "models.m.prise is unknown" in told.stderr
    assert told.stderr.startswith("drover: ")
