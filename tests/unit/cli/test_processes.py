"""What the doctor makes of the processes' settings."""

from __future__ import annotations

import pytest

from cli.doctor.finding import Verdict
from cli.doctor.processes import settings


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
