"""What a session's environment asks of its sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from drover.environment.v1.environment_pb2 import EnvironmentConfig

_MANAGERS = ("apt", "cargo", "gem", "go", "npm", "pip")


def check(environment: EnvironmentConfig) -> None:
    """Refuses a recipe that this release cannot make, with INVALID_ARGUMENT naming the path.

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
