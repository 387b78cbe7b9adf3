"""Settings of the hands."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from catalogue.sandboxes import ceilings
from chassis.settings import SecretText
from identity.settings import PeerSettings
from services.hands.backends.kubernetes.settings import ClusterOptions
from services.hands.checkpoints.settings import CheckpointOptions
from services.hands.disk import DiskLimits
from services.hands.domain import protections
from services.hands.domain.limits import MIB, Limits
from services.hands.domain.recipe import Standard
from services.hands.egress.settings import EgressOptions
from services.hands.outputs.settings import OutputOptions
from services.hands.packages.settings import PackageOptions
from services.hands.pool_settings import PoolOptions
from storage.settings import DatabaseSettings


def _half_the_processors() -> float:
    return max(1.0, (os.cpu_count() or 1) / 2)


def _protections(text: str) -> str:
    protections.minimum(text)
    return text


class HandsSettings(
    CheckpointOptions,
    ClusterOptions,
    EgressOptions,
    OutputOptions,
    PackageOptions,
    PoolOptions,
    DatabaseSettings,
    PeerSettings,
):
    """Settings of the hands."""

    hands_database_url: SecretText = Field(
        default=None, description="The database of the hands alone."
    )
    hands_memory_mib: int = Field(default=4096, ge=64, description="Memory of one sandbox.")
    hands_processes: int = Field(
        default=512, ge=16, description="Processes and threads of one sandbox."
    )
    hands_cpus: float = Field(
        default_factory=_half_the_processors,
        gt=0,
        description="Processors of one sandbox; default half of the machine's.",
    )
    hands_file_mib: int = Field(default=4096, ge=1, description="Size of one file in a sandbox.")
    hands_workspace_mib: int = Field(
        default=10240, ge=1, description="Disk of one session's files; more ends its sandbox."
    )
    hands_free_mib: int = Field(
        default=512, ge=0, description="Free disk below which a sandbox that writes is ended."
    )
    hands_tmp_mib: int = Field(default=512, ge=1, description="Size of a sandbox's /tmp.")

    sandbox: Literal["local", "docker", "kubernetes"] = Field(
        default="local",
        description="What sandboxes are made by; the environment's metadata may name another.",
    )
    sandbox_image: str = Field(
        default="drover/sandbox",
        min_length=1,
        description="The image of docker sandboxes, and of kubernetes ones, which have no other.",
    )
    sandbox_runtime: str = Field(
        default="",
        description="The engine's runtime for them, or the cluster's class; default its own.",
    )
    sandbox_data_volume: str = Field(
        default="",
        description="Where the hands are in a container beside their docker sandboxes: the "
        "engine's name of the volume that is mounted as DROVER_DATA_DIR.",
    )
    sandbox_engine_minimum: str = Field(
        default="20.10", description="The oldest version of the engine that is taken."
    )
    sandbox_runc_minimum: str = Field(
        default="", description="The oldest version of runc that is taken; default any."
    )
    sandbox_minimum: Annotated[str, AfterValidator(_protections)] = Field(
        default=protections.DEFAULT,
        description="Protections without which no sandbox starts: isolated, limited, separate, "
        "own-kernel, or names of single ones, separated by commas (docs/sandboxes.md).",
    )

    hands_drain_seconds: float = Field(
        default=3.0,
        ge=0,
        le=3600,
        description="Seconds that tool calls under way may take to end when the hands are told to "
        "stop; then their sandboxes end, and their outcome is unknown.",
    )

    @property
    def stop_seconds(self) -> float:
        """Seconds within which the process has stopped, from its signal on."""
        return super().stop_seconds + self.hands_drain_seconds

    def limits(self) -> Limits:
        """What one sandbox may use."""
        return Limits(
            memory_bytes=self.hands_memory_mib * MIB,
            processes=self.hands_processes,
            cpus=self.hands_cpus,
            file_bytes=self.hands_file_mib * MIB,
            tmp_bytes=self.hands_tmp_mib * MIB,
        )

    def disk_limits(self) -> DiskLimits:
        """What the sessions' files may take of the disk."""
        return DiskLimits(self.hands_workspace_mib * MIB, self.hands_free_mib * MIB)

    def standard(self) -> Standard:
        """What sandboxes are made of where the environment does not say."""
        images = {"docker": self.sandbox_image}
        if "sandbox_image" in self.model_fields_set:  # the default is none for a cluster
            images["kubernetes"] = self.sandbox_image
        return Standard(self.sandbox, self.limits(), images, ceilings(self.sandbox_ceilings))
