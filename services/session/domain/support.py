"""What of the contract this release does not run: refused by name, never swallowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalogue.packages import NEEDS_ROOT, WITH_ROOT, WITHOUT, of_image
from services.session.domain.admission import refuse

if TYPE_CHECKING:
    from drover.environment.v1 import environment_pb2


def check_environment(environment: environment_pb2.Environment) -> None:
    """Raises INVALID_ARGUMENT for an environment that neither sandbox nor worker can provide."""
    check_recipe(environment.config, "environment_id")


def check_recipe(recipe: environment_pb2.EnvironmentConfig, path: str) -> None:
    """As `check_environment`, for a recipe that `path` names."""
    packages, kind = recipe.cloud.packages, recipe.cloud.sandbox
    if packages.apt and kind not in {"", WITH_ROOT}:  # without a kind it is the installation's
        raise refuse(path, f"the environment lists packages for apt: {NEEDS_ROOT}")
    managers = [field.name for field in packages.DESCRIPTOR.fields if field.is_repeated]
    if kind in WITHOUT and any(getattr(packages, manager) for manager in managers):
        raise refuse(path, f"the environment lists packages: {of_image(kind)}")
