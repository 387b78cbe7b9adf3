"""Settings of what sessions leave."""

from __future__ import annotations

from pydantic import Field

from chassis.settings import Settings
from services.hands.outputs.scan import Bounds


class OutputOptions(Settings):
    """How much of a session's outputs is published."""

    hands_outputs_files: int = Field(
        default=1000,
        ge=1,
        le=10_000,
        description="Files below a session's outputs that are published.",
    )
    hands_outputs_file_bytes: int = Field(
        default=500 * 1024 * 1024,
        ge=1,
        description="Size of one of them; not more than DROVER_MAX_FILE_BYTES is taken.",
    )

    def output_bounds(self) -> Bounds:
        """What is published of one hand."""
        return Bounds(files=self.hands_outputs_files, file_bytes=self.hands_outputs_file_bytes)
