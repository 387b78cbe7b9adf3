"""Settings of the pool: how many sandboxes live, for how long, and what is kept ready."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, Field

from catalogue.sandboxes import KINDS, MEASURES, amount, checked
from chassis.settings import Settings
from services.hands.domain.recipe import Recipe, Wanted
from services.hands.pool import PoolSize

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEYS: Final = ("sandbox", "image", "limits", "spares")
_MOST_SPARES: Final = 64
_EXAMPLE: Final = '[{"sandbox": "docker", "image": "team/box:1", "spares": 2}]'
_DAY: Final = 24 * 3600.0


def pools(text: str) -> Mapping[Recipe, int]:
    """How many spares of which recipes, from JSON. Raises `ValueError`, which says what is amiss.

    An entry names what an environment's metadata would: the kind, the image, the limits.
    """
    try:
        entries = json.loads(text) if text.strip() else []
    except ValueError:
        entries = None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        msg = f"must be a JSON list of objects, such as {_EXAMPLE}"
        raise ValueError(msg)
    found: dict[Recipe, int] = {}
    for number, entry in enumerate(entries):
        try:
            recipe, spares = _pool(entry)
        except ValueError as error:
            msg = f"pool {number}: {error}"
            raise ValueError(msg) from error
        if recipe in found:
            msg = f"pool {number}: an earlier one has the same recipe"
            raise ValueError(msg)
        found[recipe] = spares
    return found


def _pool(entry: dict[str, Any]) -> tuple[Recipe, int]:
    unknown = sorted(entry.keys() - set(_KEYS))
    kind, image, spares = entry.get("sandbox", ""), entry.get("image", ""), entry.get("spares")
    if unknown:
        msg = f"{unknown[0]} is not among {', '.join(_KEYS)}"
    elif not isinstance(kind, str) or (kind and kind not in KINDS):
        msg = f"sandbox must be one of {', '.join(KINDS)}"
    elif not isinstance(image, str):
        msg = "image must be a name"
    elif image and kind == "local":
        msg = "local sandboxes are made of no image"
    elif type(spares) is not int or not 1 <= spares <= _MOST_SPARES:
        msg = f"spares must be a whole number from 1 to {_MOST_SPARES}"
    else:
        return Recipe(kind, image, _wanted(entry.get("limits", {}))), spares
    raise ValueError(msg)


def _wanted(limits: object) -> Wanted:
    measures = {measure.name: measure for measure in MEASURES}
    if not isinstance(limits, dict) or limits.keys() - measures.keys():
        msg = f"limits must be an object of {', '.join(measures)}"
        raise ValueError(msg)
    wanted: dict[str, Any] = {}
    for name, value in limits.items():
        try:
            wanted[name] = amount(measures[name], json.dumps(value), float("inf"))
        except ValueError as error:
            msg = f"limits.{name} {error}".partition(" to ")[0]
            raise ValueError(msg) from error
    return Wanted(**wanted)


def _checked(text: str) -> str:
    pools(text)
    return text


class PoolOptions(Settings):
    """How many sandboxes live, for how long, and what is kept ready."""

    hands_max_sandboxes: int = Field(
        default=128, ge=1, description="Sandboxes that live at once; idle ones make room."
    )
    hands_clone_seconds: float = Field(
        default=900.0,
        gt=0,
        le=86_400,
        description="How long the clone of one repository into a new workspace may take.",
    )
    hands_idle_seconds: float = Field(
        default=600.0, gt=0, description="Seconds after which an idle sandbox is ended."
    )
    hands_max_age_seconds: float = Field(
        default=30 * _DAY,
        gt=0,
        description="Seconds after which a sandbox is replaced as soon as no call is under way.",
    )
    hands_spare_sandboxes: int = Field(
        default=1, ge=0, le=16, description="Sandboxes kept ready for new sessions."
    )
    hands_pools: Annotated[str, AfterValidator(_checked)] = Field(
        default="",
        description="Sandboxes kept ready of other recipes than the default one: a JSON list such "
        f"as {_EXAMPLE}.",
    )
    sandbox_ceilings: Annotated[str, AfterValidator(checked)] = Field(
        default="",
        description='The most that environments may ask for, such as {"memory_mib": 8192}.',
    )

    def pool_size(self) -> PoolSize:
        """How many sandboxes live, and for how long."""
        return PoolSize(
            max_live=self.hands_max_sandboxes,
            idle_seconds=self.hands_idle_seconds,
            max_age_seconds=self.hands_max_age_seconds,
            spares=self.hands_spare_sandboxes,
            starts_at_once=2 * (os.cpu_count() or 1),
            clone_seconds=self.hands_clone_seconds,
        )
