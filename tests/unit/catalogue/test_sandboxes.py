from __future__ import annotations

import pytest

from catalogue.sandboxes import DEFAULT_CEILINGS, MEASURES, amount, ceilings

MEASURE = {measure.name: measure for measure in MEASURES}


def test_ceiling_of_the_operators_bounds_what_may_be_asked_for() -> None:
    raised = ceilings('{"memory_mib": 65536, "cpus": 2.5}')
    assert amount(MEASURE["memory_mib"], "65536", raised["memory_mib"]) == 65536
    assert amount(MEASURE["cpus"], "2.5", raised["cpus"]) == 2.5
    with pytest.raises(ValueError, match=r"must be a number from 0\.1 to 2\.5"):
        amount(MEASURE["cpus"], "2.6", raised["cpus"])
    assert raised["processes"] == DEFAULT_CEILINGS["processes"]


def test_nothing_said_is_the_defaults() -> None:
    assert ceilings("") == ceilings("{}") == DEFAULT_CEILINGS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("memory=4", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        ('{"memory": 4096}', "memory is no limit: there are memory_mib, cpus"),
        ('{"memory_mib": "4096"}', "memory_mib must be a number, at least 64"),
        ('{"cpus": true}', r"cpus must be a number, at least 0\.1"),
        ('{"cpus": NaN}', r"cpus must be a number, at least 0\.1"),
        ('{"processes": 3}', "processes must be a number, at least 16"),
    ],
)
def test_setting_that_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ceilings(text)
