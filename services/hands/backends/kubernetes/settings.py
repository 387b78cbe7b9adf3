"""What the operator says of the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from chassis.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.hands.domain.protections import Protection

PodSecurity = Literal["restricted", "baseline", "any"]

_MIB = 1024 * 1024


class ClusterOptions(Settings):
    """Settings of kubernetes sandboxes, beside those that all kinds share."""

    kubernetes_namespace: str = Field(
        default="drover-sandboxes", min_length=1, description="The namespace of sandboxes' pods."
    )
    kubernetes_volume_claim: str = Field(
        default="drover-hands",
        min_length=1,
        description="The ReadWriteMany claim there that holds the hands' data directory.",
    )
    kubernetes_volume_root: Path | None = Field(
        default=None,
        description="Where this process has that claim mounted; default DATA/hands.",
    )
    kubernetes_pull_secret: str = Field(
        default="", description="The secret there with which images are pulled; default none."
    )
    kubernetes_requested_memory_mib: int = Field(
        default=256, ge=1, description="Memory of a node set aside for one sandbox's pod."
    )
    kubernetes_requested_cpus: float = Field(
        default=0.1, gt=0, description="Processors of a node set aside for one sandbox's pod."
    )
    kubernetes_disk_mib: int = Field(
        default=1024, ge=64, description="A node's disk for one pod's log and all that is its own."
    )
    kubernetes_start_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Seconds in which a pod must run, pulling its image and all.",
    )
    kubernetes_pod_seconds: int = Field(
        default=604_800,
        ge=60,
        description="Seconds after which the cluster ends a pod, whatever becomes of its hands.",
    )
    kubernetes_pod_security: PodSecurity = Field(
        default="baseline", description="The least pod security that the namespace must enforce."
    )
    kubernetes_probe: str = Field(
        default="api",
        description="host:port that no pod may reach, which each tries at its start; `api` is the "
        "API server; empty tries nothing.",
    )
    kubernetes_minimum: str = Field(
        default="1.25", description="The oldest version of the API server that is taken."
    )


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """`root` is where this process has the claim mounted, None for the hands' own directory.

    `image` is empty where the operator named none, `runtime` a RuntimeClass, the cluster's default
    if empty. `config` is a kubeconfig file; None stands for the pod's own service account.
    `seconds` bounds each call of the API; `least` are the protections without which no sandbox
    is started.
    """

    namespace: str
    claim: str
    image: str
    runtime: str = ""
    root: Path | None = None
    config: str | None = None
    pull_secret: str = ""
    requested_memory: int = 256 * _MIB
    requested_cpus: float = 0.1
    disk: int = 1024 * _MIB
    start_seconds: float = 60.0
    pod_seconds: int = 604_800
    pod_security: PodSecurity = "baseline"
    probe: str = "api"
    minimum: str = "1.25"
    threads: int = 8
    seconds: float = 20.0
    least: frozenset[Protection] = frozenset()

    @classmethod
    def of(
        cls,
        options: ClusterOptions,
        image: str,
        runtime: str,
        least: frozenset[Protection],
        environ: Mapping[str, str],
    ) -> ClusterSettings:
        """Those of a process: its options, and where its environment says that the cluster is."""
        return cls(
            namespace=options.kubernetes_namespace,
            claim=options.kubernetes_volume_claim,
            image=image,
            runtime=runtime,
            root=options.kubernetes_volume_root,
            config=config_file(environ),
            pull_secret=options.kubernetes_pull_secret,
            requested_memory=options.kubernetes_requested_memory_mib * _MIB,
            requested_cpus=options.kubernetes_requested_cpus,
            disk=options.kubernetes_disk_mib * _MIB,
            start_seconds=options.kubernetes_start_seconds,
            pod_seconds=options.kubernetes_pod_seconds,
            pod_security=options.kubernetes_pod_security,
            probe=options.kubernetes_probe,
            minimum=options.kubernetes_minimum,
            least=least,
        )


def config_file(environ: Mapping[str, str]) -> str | None:
    """The kubeconfig that is to be read; None in a pod that has a service account of its own."""
    if named := environ.get("KUBECONFIG"):
        return named
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    return str(Path(environ.get("HOME", "/root")) / ".kube" / "config")
