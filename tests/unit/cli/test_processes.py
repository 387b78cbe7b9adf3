"""What the doctor makes of the processes' settings."""

from __future__ import annotations

import pytest

from cli.doctor.finding import Verdict
from cli.doctor.processes import settings, unread


def test_settings_that_all_processes_take_are_fine() -> None:
    (found,) = settings()
    assert found.verdict is Verdict.FINE


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("DROVER_HANDS_POOLS", '[{"sandbox": "dokcer", "spares": 1}]', "must be one of local"),
        ("DROVER_HANDS_POOLS", "[", "must be a JSON list"),
        ("DROVER_SANDBOX_CEILINGS", '{"memory": 1}', "memory is no limit"),
        ("DROVER_HANDS_IDLE_SECONDS", "soon", "valid number"),
        ("DROVER_STUCK_SESSION_SECONDS", "-1", "greater"),
    ],
)
def test_setting_that_keeps_a_process_from_starting_is_told_once_with_why(
    variable: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    (found,) = settings()
    assert found.verdict is Verdict.MISSING
    assert found.detail.startswith(f"{variable}: ")
    assert why in found.detail
    assert variable in found.remedy


def test_a_variable_that_nobody_reads_is_told_with_the_one_that_may_be_meant() -> None:
    known = ["DROVER_EGRESS_CA_FILE", "DROVER_API_KEY", "DROVER_URL", "DROVER_DATABASE_URL", "PATH"]
    assert unread([*known, "DROVER_TEST_ENGINE"]) == []
    misspelt, unheard = unread([*known, "DROVER_NOSUCHTHING", "DROVER_EGRES_CA_FILE"])
    assert misspelt.verdict is unheard.verdict is Verdict.OPTIONAL
    assert "DROVER_EGRES_CA_FILE" in misspelt.detail
    assert "DROVER_EGRESS_CA_FILE" in misspelt.remedy
    assert "drover config" in unheard.remedy
