"""What a session's environment asks of its sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from drover.environment.v1.environment_pb2 import EnvironmentConfig

_MANAGERS = ("apt", "cargo", "gem", "go", "npm", "pip")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The kind of sandbox and its image; empty is the installation's default."""

    kind: str = ""
    image: str = ""


DEFAULT = Recipe()


def check(environment: EnvironmentConfig) -> Recipe:
    """The recipe; refuses what this release cannot make with INVALID_ARGUMENT naming the path.

    Networking is taken as it is: no sandbox has a network yet, which is within every policy.
    """
    if environment.HasField("self_hosted"):
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            "environment.self_hosted: the operator's workers run its tools, not a sandbox here",
        )
    packages = environment.cloud.packages
    for manager in _MANAGERS:
        if getattr(packages, manager):
            raise DroverError(
                Reason.INVALID_ARGUMENT,
                f"environment.packages.{manager}: packages are not installed in this release",
            )
    return Recipe(environment.cloud.sandbox, environment.cloud.image)
