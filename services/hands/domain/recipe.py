"""What a session's environment asks of its sandbox, and what that makes here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from catalogue.sandboxes import MEASURES
from chassis.errors import DroverError, Reason
from services.hands.domain.limits import MIB, Limits
from services.hands.domain.packages import NONE, Packages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drover.environment.v1.environment_pb2 import EnvironmentConfig, SandboxLimits

_LEAST: Final = {measure.name: measure.least for measure in MEASURES}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The limits that an environment asks for; 0 is the installation's default."""

    memory_mib: int = 0
    cpus: float = 0.0
    processes: int = 0
    file_mib: int = 0
    tmp_mib: int = 0
    workspace_mib: int = 0

    @classmethod
    def of(cls, limits: SandboxLimits) -> Wanted:
        """What a message asks for."""
        return cls(**{name: getattr(limits, name) for name in _LEAST})


@dataclass(frozen=True, slots=True)
class Recipe:
    """The kind of sandbox, its image and its limits; empty is the installation's default. And what
    is installed in it, and the directories of memory `stores` that it may write to.
    """

    kind: str = ""
    image: str = ""
    wanted: Wanted = Wanted()
    packages: Packages = NONE
    stores: tuple[str, ...] = ()


DEFAULT = Recipe()


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A recipe with nothing left to the installation: equal ones make equal sandboxes."""

    kind: str
    image: str
    limits: Limits
    packages: Packages = NONE
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Standard:
    """What the installation makes of what a recipe leaves open, and how much it grants.

    `images` has the default image of the kinds that have one. `ceilings` bound what is asked for,
    not the installation's own `limits`; a measure that is not there is not bounded.
    """

    kind: str
    limits: Limits = field(default_factory=Limits)
    images: Mapping[str, str] = field(default_factory=dict)
    ceilings: Mapping[str, float] = field(default_factory=dict)

    def blueprint(self, recipe: Recipe) -> Blueprint:
        """What is made by `recipe`."""
        kind = recipe.kind or self.kind
        image = recipe.image or self.images.get(kind, "")
        limits = self._limits(recipe.wanted)
        return Blueprint(kind, image, limits, recipe.packages, recipe.stores)

    def _limits(self, wanted: Wanted) -> Limits:
        if wanted == Wanted():
            return self.limits
        granted: dict[str, float] = {}
        for name, least in _LEAST.items():
            if asked := getattr(wanted, name):
                value = max(least, min(asked, self.ceilings.get(name, asked)))
                whole = name.removesuffix("_mib")
                granted[name if whole == name else f"{whole}_bytes"] = (
                    value if whole == name else int(value) * MIB
                )
        return replace(self.limits, **granted)  # type: ignore[arg-type]  # by the names above


def check(
    environment: EnvironmentConfig, workspace_id: str = "", stores: tuple[str, ...] = ()
) -> Recipe:
    """The recipe; refuses what this release cannot make with INVALID_ARGUMENT naming the path.

    Networking is the vault proxy's matter. What of the packages cannot be installed is no reason to
    refuse: the session goes on without, and is told.
    """
    if environment.HasField("self_hosted"):
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            "environment.self_hosted: the operator's workers run its tools, not a sandbox here",
        )
    cloud = environment.cloud
    wanted = Wanted.of(cloud.limits) if cloud.HasField("limits") else Wanted()
    packages = Packages.of(cloud, workspace_id)
    return Recipe(cloud.sandbox, cloud.image, wanted, packages, stores)
