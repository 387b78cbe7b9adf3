"""Whether a model can do what an agent asks of it, as far as the catalogue knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason
from drover.agent.v1.model_pb2 import (
    EFFORT_LEVEL_HIGH,
    EFFORT_LEVEL_UNSPECIFIED,
    MODEL_SPEED_FAST,
    EffortLevel,
)

if TYPE_CHECKING:
    from catalogue.models import Model
    from drover.agent.v1.model_pb2 import ModelConfig


def check_ability(wanted: ModelConfig, known: Model, prefix: str = "") -> None:
    """Raises INVALID_ARGUMENT for an effort or a speed that the model is known not to have.

    Effort `high` is what every model does by itself. A model that the catalogue does not know is
    asked for whatever the agent says: its server decides. `prefix` stands before the paths.
    """
    if not known.known:
        return
    level = wanted.effort.type
    name = EffortLevel.Name(level).removeprefix("EFFORT_LEVEL_").lower()
    if level not in (EFFORT_LEVEL_UNSPECIFIED, EFFORT_LEVEL_HIGH) and name not in known.efforts:
        offered = ", ".join(known.efforts) or "none but high, which is how it works by itself"
        _refuse(f"{prefix}model.effort", f"{wanted.id} has no effort {name!r}; it has: {offered}")
    if wanted.speed == MODEL_SPEED_FAST and known.fast_price is None:
        _refuse(f"{prefix}model.speed", f"{wanted.id} has no fast mode")


def _refuse(path: str, text: str) -> None:
    raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {text}")
