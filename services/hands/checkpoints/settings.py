"""Where checkpoints of workspaces are kept, and when they are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from chassis.errors import CannotStartError
from chassis.settings import Settings
from services.hands.checkpoints.keeper import Pace
from services.hands.checkpoints.restoring import SETTING
from storage.objects import open_objects

if TYPE_CHECKING:
    from storage.objects import Objects


class CheckpointOptions(Settings):
    """Settings of checkpoints."""

    hands_checkpoints: str = Field(
        default="",
        description="Where workspaces are kept beside this machine: file:///directory or "
        "s3://bucket/prefix; default nowhere.",
    )
    hands_checkpoint_idle_seconds: float = Field(
        default=5.0,
        gt=0,
        description="Seconds without a call after which a workspace that changed is stored.",
    )
    hands_checkpoints_at_once: int = Field(
        default=2, ge=1, le=64, description="Workspaces that are stored at the same time."
    )

    def pace(self) -> Pace:
        """When checkpoints are taken."""
        return Pace(
            idle_seconds=self.hands_checkpoint_idle_seconds, at_once=self.hands_checkpoints_at_once
        )

    def store(self) -> Objects | None:
        """Where they are kept, if anywhere. Raises `CannotStartError`, which names the setting."""
        if not self.hands_checkpoints:
            return None
        try:
            return open_objects(self.hands_checkpoints)
        except CannotStartError as error:
            raise CannotStartError(f"{SETTING}: {error}") from error
