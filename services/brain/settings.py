"""What can be set of a brain."""

from __future__ import annotations

import socket
from pathlib import Path

from pydantic import Field

from identity.settings import PeerSettings
from services.brain.model.access import Provider


class BrainSettings(PeerSettings):
    """Settings of one brain. The model's are the SDK's own: ANTHROPIC_API_KEY and so on."""

    model_provider: Provider = Field(
        default=Provider.ANTHROPIC,
        description="Who serves the models: anthropic (or any server that speaks the Messages API),"
        " bedrock, bedrock_mantle, aws, vertex, google_cloud or foundry.",
    )

    brain_name: str = Field(
        default_factory=lambda: f"brain-{socket.gethostname()}",
        description="Names this brain in leases and to operators; default brain-HOST, the host's "
        "name, which tells containers apart.",
    )
    max_sessions: int = Field(
        default=512, ge=1, description="Sessions that one brain works on at a time."
    )
    max_output_tokens: int = Field(
        default=32_000,
        ge=1,
        description="max_tokens of every model request, where the model can write as many.",
    )
    max_requests_per_turn: int = Field(
        default=200, ge=1, description="Model requests after which a turn is ended."
    )
    model_attempts: int = Field(
        default=8, ge=1, description="Times a model request is made before the turn is given up."
    )
    clear_at: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the model's window at which old tool results are cleared.",
    )
    clear_least: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="Share of the window that clearing must free, or it is left.",
    )
    clear_keep: int = Field(
        default=6, ge=0, description="Large tool results that are kept, counted from the newest."
    )
    compact_at: float = Field(
        default=0.8,
        gt=0,
        le=1,
        description="Share of the model's window at which the conversation is summarised.",
    )
    compact_tail: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="Share of the window that the newest messages may take beside a summary.",
    )
    judge_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Seconds to judge calls under the policy auto; then a person is asked.",
    )
    state_cache_bytes: int = Field(
        default=64 * 1024 * 1024, ge=0, description="Memory for the states of sessions at rest."
    )
    file_cache_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=0,
        description="Memory for the files that conversations show, as the model is sent them.",
    )
    brain_drain_seconds: float = Field(
        default=2.0,
        ge=0,
        le=600,
        description="Seconds that model requests under way may take to end when the brain is told "
        "to stop; another brain makes those anew that do not. All else is left to it at once.",
    )
    models_file: Path | None = Field(
        default=None, description="JSON file with models and prices of yours, over those shipped."
    )
    sync_points: Path | None = Field(
        default=None,
        description="For tests only: directory of files that hold or kill this brain at points.",
    )

    @property
    def stop_seconds(self) -> float:
        """Seconds within which the process has stopped, from its signal on."""
        return super().stop_seconds + self.brain_drain_seconds
