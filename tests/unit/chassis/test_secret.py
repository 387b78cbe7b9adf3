from __future__ import annotations

import copy
import json
import pickle

import pytest

from chassis.secret import Secret

PLAIN = "hunter2-hunter2"


def test_secret_shows_itself_in_no_text():
    secret = Secret(PLAIN)
    shown = [repr(secret), str(secret), f"{secret}", f"{[secret]}"]
    assert not any(PLAIN in text for text in shown)


def test_secret_cannot_be_pickled_copied_or_serialised():
    secret = Secret(PLAIN)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps, vars):
        with pytest.raises(TypeError):
            attempt(secret)


def test_secret_opens_and_compares():
    assert Secret(PLAIN).open() == PLAIN
    assert Secret(PLAIN).matches(PLAIN)
    assert not Secret(PLAIN).matches("")
    assert not Secret(PLAIN).matches("ünïcode")
