from __future__ import annotations

import json
from typing import get_args

import pytest
from anthropic.types import model as messages_model
from anthropic.types.beta import beta_managed_agents_model as agents_model

from catalogue.models import SHIPPED, load
from chassis.errors import CannotStartError

LISTED = {
    one
    for alias in (messages_model.Model, agents_model.BetaManagedAgentsModel)
    for part in get_args(alias)
    for one in get_args(part)
}
PRICE = {"input": 1, "output": 2, "cache_read": 0, "cache_write_5m": 1, "cache_write_1h": 1}


def overlaid(tmp_path, document):
    file = tmp_path / "mine.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return load(file)


def test_every_model_that_the_sdk_names_is_listed_with_a_price():
    catalogue = load(None)
    assert len(LISTED) > 20
    for model_id in LISTED:
        model = catalogue.of(model_id)
        assert (model.id, model.known) == (model_id, True)
        assert model.price is not None
        assert model.max_output_tokens < model.context_window


def test_prices_are_in_the_order_that_makes_a_cache_worth_while():
    for model in load(None).models.values():
        for price in (model.price, model.fast_price, model.long_prompt and model.long_prompt.price):
            if price is not None:
                assert price.cache_read < price.input < price.cache_write_5m
                assert price.cache_write_5m < price.cache_write_1h < price.output


def test_a_short_id_and_its_dated_one_are_described_alike():
    models = json.loads(SHIPPED.read_text())["models"]
    dated = [name for name in models if name[-8:].isdigit()]
    assert dated
    for name in dated:
        assert models[name] == models[name[:-9]]


@pytest.mark.parametrize(
    ("spelling", "listed"),
    [
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("claude-opus-5-20260724", "claude-opus-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5-20251001"),
        ("claude-opus-4-8@default", "claude-opus-4-8"),
        ("us.anthropic.claude-opus-4-6-v1:0", "claude-opus-4-6"),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5-20250929"),
        ("claude-sonnet-5-5[1m]", "claude-sonnet-5-5"),
        ("anthropic/claude-fable-5", "claude-fable-5"),
        (
            "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-opus-5-5",
            "claude-opus-5-5",
        ),
    ],
)
def test_an_id_is_found_however_a_vendor_spells_it(spelling, listed):
    assert load(None).of(spelling).id == listed


@pytest.mark.parametrize(
    "model_id", ["claude-opus-5-6", "claude-opus-6", "claude", "qwen3:30b", "gpt-6.1", "", "/", "-"]
)
def test_an_unknown_id_borrows_nothing_from_its_neighbours(model_id):
    model = load(None).of(model_id)
    assert (model.id, model.known, model.price) == (model_id, False, None)
    assert (model.context_window, model.max_output_tokens) == (200_000, 32_000)
    assert (model.efforts, model.adaptive_thinking, model.mid_conversation_system) == (
        (),
        False,
        False,
    )


def test_a_file_replaces_what_it_names_and_adds_what_is_new(tmp_path):
    shipped = load(None)
    mine = overlaid(
        tmp_path,
        {
            "session": {"running_hour": 0},
            "models": {
                "claude-opus-5": {"price": PRICE | {"cache_read": 0.125}},
                "qwen3:30b": {"context_window": 40_000, "price": None, "efforts": ["max", "low"]},
            },
        },
    )
    changed, before = mine.of("claude-opus-5"), shipped.of("claude-opus-5")
    assert changed.price is not None
    assert (changed.price.input, changed.price.cache_read) == (1_000_000, 125_000)
    assert (changed.context_window, changed.fast_price) == (
        before.context_window,
        before.fast_price,
    )
    own = mine.of("qwen3:30b")
    assert (own.known, own.context_window, own.price) == (True, 40_000, None)
    assert own.efforts == ("low", "max")
    assert own.max_output_tokens == 32_000
    assert mine.rates.running_hour == 0
    assert mine.rates.thousand_searches == shipped.rates.thousand_searches == 10_000_000
    assert mine.of("claude-opus-5-5") == shipped.of("claude-opus-5-5")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "is not JSON"),
        ('{"models": {}, "models": {}}', '"models" is there twice'),
        ([], "all of it must be an object"),
        ({"modles": {}}, "modles is unknown; there are about, models, session"),
        ({"models": {"m": {"prise": 1}}}, "models.m.prise is unknown"),
        ({"models": {"m": {"price": {"input": 1}}}}, "models.m.price.cache_read is missing"),
        ({"models": {"m": {"price": PRICE | {"input": -1}}}}, "models.m.price.input must be"),
        ({"models": {"m": {"price": PRICE | {"input": "1"}}}}, "models.m.price.input must be"),
        ({"models": {"m": {"price": PRICE | {"input": True}}}}, "models.m.price.input must be"),
        ('{"models": {"m": {"context_window": NaN}}}', "models.m.context_window must be"),
        (
            {"models": {"m": {"price": PRICE | {"input": 1e-9}}}},
            "models.m.price.input must be whole millionths",
        ),
        ({"models": {"m": {"context_window": 0}}}, "models.m.context_window must be"),
        ({"models": {"m": {"efforts": ["some"]}}}, "models.m.efforts must be a list of low"),
        ({"models": {"m": {"adaptive_thinking": 1}}}, "models.m.adaptive_thinking must be"),
        ({"models": {"m": {"long_prompt": {"above": 1}}}}, "models.m.long_prompt.price is missing"),
        ({"session": {"running_hour": None}}, "session.running_hour must be a number"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name_and_place(tmp_path, document, says):
    with pytest.raises(CannotStartError) as refused:
        overlaid(tmp_path, document)
    assert str(tmp_path / "mine.json") in str(refused.value)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(CannotStartError, match="cannot be read"):
        load(tmp_path / "none.json")
