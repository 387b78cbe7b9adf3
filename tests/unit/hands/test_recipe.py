from __future__ import annotations

from dataclasses import replace

import pytest

from chassis.errors import DroverError
from drover.environment.v1.environment_pb2 import EnvironmentConfig
from services.hands.domain.limits import MIB, Limits
from services.hands.domain.recipe import DEFAULT, Recipe, Wanted, check
from tests.unit.hands.conftest import STANDARD


def test_cloud_with_any_networking_is_taken() -> None:
    check(EnvironmentConfig())
    limited = EnvironmentConfig()
    limited.cloud.networking.limited.allowed_hosts.append("example.com")
    check(limited)


def test_packages_make_another_blueprint_that_no_spare_of_the_default_has() -> None:
    environment = EnvironmentConfig()
    environment.cloud.packages.pip.append("numpy")
    made = STANDARD.blueprint(check(environment))
    assert made != STANDARD.blueprint(DEFAULT)
    assert made.packages.lists == (("pip", ("numpy",)),)
    environment.cloud.packages.ClearField("pip")
    assert STANDARD.blueprint(check(environment)) == STANDARD.blueprint(DEFAULT)


def test_operators_own_workers_are_refused_by_path() -> None:
    recipe = EnvironmentConfig()
    recipe.self_hosted.SetInParent()
    with pytest.raises(DroverError, match=r"environment\.self_hosted: "):
        check(recipe)


def test_environment_without_limits_gets_the_installations() -> None:
    assert STANDARD.blueprint(check(EnvironmentConfig())).limits == STANDARD.limits


def test_environment_gets_the_limits_it_asks_for_up_to_the_ceilings() -> None:
    environment = EnvironmentConfig()
    asked = environment.cloud.limits
    asked.memory_mib, asked.cpus, asked.processes, asked.workspace_mib = 100_000, 0.5, 20, 40
    made = STANDARD.blueprint(check(environment)).limits
    assert made.memory_bytes == 8192 * MIB
    assert (made.cpus, made.processes, made.workspace_bytes) == (0.5, 20, 40 * MIB)
    assert (made.file_bytes, made.tmp_bytes) == (STANDARD.limits.file_bytes, 512 * MIB)


def test_ceilings_do_not_bound_the_installations_own_limits() -> None:
    own = replace(STANDARD, limits=Limits(memory_bytes=32_768 * MIB))
    assert own.blueprint(DEFAULT).limits.memory_bytes == 32_768 * MIB
    assert own.blueprint(Recipe(wanted=Wanted(cpus=1))).limits.memory_bytes == 32_768 * MIB


@pytest.mark.parametrize("cpus", [-1.0, 1e-9, float("nan")])
def test_limit_with_which_no_sandbox_could_run_is_the_least_that_is_of_use(cpus: float) -> None:
    made = STANDARD.blueprint(Recipe(wanted=Wanted(cpus=cpus, memory_mib=1))).limits
    assert (made.cpus, made.memory_bytes) == (0.1, 64 * MIB)
