from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.hands.domain.recipe import Recipe, Wanted
from services.hands.pool_settings import PoolOptions, pools


def test_pools_are_read_from_json() -> None:
    text = """[
        {"sandbox": "docker", "image": "team/box:1", "spares": 2},
        {"sandbox": "docker", "limits": {"memory_mib": 256, "cpus": 0.5}, "spares": 1},
        {"spares": 3}
    ]"""
    assert pools(text) == {
        Recipe("docker", "team/box:1"): 2,
        Recipe("docker", "", Wanted(memory_mib=256, cpus=0.5)): 1,
        Recipe(): 3,
    }
    assert pools("") == pools("[]") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("docker=2", "must be a JSON list of objects, such as"),
        ('{"spares": 1}', "must be a JSON list of objects"),
        ("[3]", "must be a JSON list of objects"),
        ('[{"spares": 1, "size": 2}]', "pool 0: size is not among sandbox, image, limits, spares"),
        ('[{"sandbox": "vmware", "spares": 1}]', "pool 0: sandbox must be one of local, docker"),
        ('[{"sandbox": "docker"}]', "pool 0: spares must be a whole number from 1 to 64"),
        ('[{"spares": true}]', "pool 0: spares must be a whole number"),
        ('[{"spares": 65}]', "pool 0: spares must be a whole number"),
        ('[{"sandbox": "local", "image": "x", "spares": 1}]', "pool 0: local sandboxes are made"),
        ('[{"spares": 1}, {"spares": 2}]', "pool 1: an earlier one has the same recipe"),
        ('[{"spares": 1, "limits": {"memory": 1}}]', "pool 0: limits must be an object of memory_"),
        (
            '[{"spares": 1, "limits": {"memory_mib": 1}}]',
            "pool 0: limits.memory_mib must be a whole number from 64",
        ),
        ('[{"spares": 1, "limits": {"cpus": "1"}}]', "pool 0: limits.cpus must be a number"),
    ],
)
def test_pools_that_cannot_be_kept_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        pools(text)


def test_setting_is_checked_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_HANDS_POOLS", '[{"spares": 0}]')
    monkeypatch.setenv("DROVER_SANDBOX_CEILINGS", '{"memory": 1}')
    with pytest.raises(ValidationError) as refused:
        PoolOptions()
    reasons = [error["msg"] for error in refused.value.errors()]
    assert reasons == [
        "Value error, pool 0: spares must be a whole number from 1 to 64",
        (
            "Value error, memory is no limit: there are memory_mib, cpus, processes, file_mib, "
            "tmp_mib, workspace_mib"
        ),
    ]


def test_a_sandbox_may_grow_thirty_days_old_where_nothing_else_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert PoolOptions().pool_size().max_age_seconds == 30 * 24 * 3600
    monkeypatch.setenv("DROVER_HANDS_MAX_AGE_SECONDS", "60")
    assert PoolOptions().pool_size().max_age_seconds == 60
