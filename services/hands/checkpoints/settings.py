"""Where checkpoints of workspaces are kept, and when they are taken."""

from __future__ import annotations

from pydantic import Field

from chassis.settings import Settings
from services.hands.checkpoints.keeper import Pace


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
