"""What of the contract this release does not run: refused by name, never swallowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.session.domain.admission import refuse

if TYPE_CHECKING:
    from drover.environment.v1 import environment_pb2

_NOT_YET = "not supported by this release"


def check_environment(environment: environment_pb2.Environment) -> None:
    """Raises INVALID_ARGUMENT for an environment that neither sandbox nor worker can provide."""
    check_recipe(environment.config, "environment_id")


def check_recipe(recipe: environment_pb2.EnvironmentConfig, path: str) -> None:
    """As `check_environment`, for a recipe that `path` names."""
    packages = recipe.cloud.packages
    managers = [field.name for field in packages.DESCRIPTOR.fields if field.is_repeated]
    if any(getattr(packages, manager) for manager in managers):
        raise refuse(path, f"environments with packages are {_NOT_YET}")
