from __future__ import annotations

import pytest

from cli.settings import settings_of, show_settings, shown_value
from cli.stack.plan import Plan

CANARY = "canary-5Kd2"
MODULES = Plan.make(host="127.0.0.1", port=8080, brains=1, ports=[0] * 5).modules
SECRET = [setting.variable for setting in settings_of(MODULES) if setting.secret]


def test_settings_of_the_type_of_secrets_are_known_as_such() -> None:
    assert {"DROVER_VAULT_KEYS", "DROVER_VAULT_TRANSIT_TOKEN", "DROVER_DATABASE_URL"} <= {*SECRET}


def test_no_secret_is_listed_with_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"postgresql://drover:{CANARY}@db:5432/drover"
    show_settings({name: url if name.endswith("_URL") else CANARY for name in SECRET})
    shown = capsys.readouterr().out
    assert all(name in shown for name in SECRET)
    assert CANARY not in shown


@pytest.mark.parametrize("variable", ["DROVER_API_KEY", "X_TOKEN", "X_SECRET", "X_PASSWORD"])
def test_what_sounds_like_a_secret_is_taken_for_one(variable: str) -> None:
    assert shown_value(variable, CANARY) == "***"
    assert shown_value("DROVER_LISTEN", "127.0.0.1:1", secret=True) == "***"
    assert shown_value("DROVER_LISTEN", "127.0.0.1:1") == "127.0.0.1:1"
