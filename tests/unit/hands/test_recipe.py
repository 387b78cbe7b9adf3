from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.environment.v1.environment_pb2 import EnvironmentConfig
from services.hands.domain.recipe import check


def test_cloud_with_any_networking_is_taken() -> None:
    check(EnvironmentConfig())
    limited = EnvironmentConfig()
    limited.cloud.networking.limited.allowed_hosts.append("example.com")
    check(limited)


def test_packages_are_refused_by_path() -> None:
    recipe = EnvironmentConfig()
    recipe.cloud.packages.pip.append("numpy")
    with pytest.raises(DroverError, match=r"environment\.packages\.pip: ") as refused:
        check(recipe)
    assert refused.value.reason is Reason.INVALID_ARGUMENT


def test_operators_own_workers_are_refused_by_path() -> None:
    recipe = EnvironmentConfig()
    recipe.self_hosted.SetInParent()
    with pytest.raises(DroverError, match=r"environment\.self_hosted: "):
        check(recipe)
