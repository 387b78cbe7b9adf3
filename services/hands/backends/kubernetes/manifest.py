"""What the cluster is told of a sandbox: a pod, and a network policy that keeps all of them apart.

The words are those of the Kubernetes API, core/v1 and networking.k8s.io/v1. The manifests satisfy
the pod security standard "restricted".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from services.hands.backends import inside
from services.hands.backends.agent_files import MAIN_FILE
from services.hands.backends.etc_files import HOSTNAME

if TYPE_CHECKING:
    from pathlib import Path

    from services.hands.backends.kubernetes.settings import ClusterSettings
    from services.hands.backends.port import SandboxSpec
    from services.hands.backends.user_files import UserFiles

INSTALLATION: Final = "drover.installation"
HAND: Final = "drover.hand"
CONTAINER: Final = "sandbox"
API: Final = "api"
"""Stands for the API server, as the kubelet tells a pod of it."""
GO: Final = b"\n"
"""What the first process waits for before it says anything.

A pod runs before anybody is attached to it, and what it says until then is heard by nobody.
"""
OTHER_CLAIM: Final = "its volume claim is not the one that the hands have their directory on"
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_VOLUME: Final = "hands"
_WAIT_SECONDS: Final = 120
_MAIN: Final = f"{inside.AGENT_DIRECTORY}/{MAIN_FILE}"
_PROBE_SECONDS: Final = 0.5
_PROBES: Final = 6
# A network may need a moment to enforce a policy for a pod that is new: it must do so in the end.
_ENTRY: Final = f"""\
import os, select, sys, _socket
def reached(host, port):
    probe = _socket.socket(_socket.AF_INET6 if ":" in host else _socket.AF_INET)
    probe.settimeout({_PROBE_SECONDS})
    try:
        probe.connect((host, int(port)))
    except OSError:
        return False
    finally:
        probe.close()
    select.select([], [], [], {_PROBE_SECONDS})
    return True
host, _, port = sys.argv[1].rpartition(":")
if sys.argv[1] == {API!r}:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
is_open = host and all(reached(host.strip("[]"), port) for _ in range({_PROBES}))
if not select.select([0], [], [], {_WAIT_SECONDS})[0] or not os.read(0, 1):
    sys.exit("nobody came")
if is_open:
    sys.exit("its network is open: it reached " + host + ":" + port + ". Use a network that "
        "enforces policies; docs/kubernetes.md says more")
if not os.path.exists({_MAIN!r}):
    sys.exit({OTHER_CLAIM!r})
with open({_MAIN!r}, "rb") as main:
    exec(compile(main.read(), {_MAIN!r}, "exec"), {{"__name__": "__main__", "__file__": {_MAIN!r}}})
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim's name, and where this process has it mounted."""

    name: str
    root: Path

    def sub_path(self, path: Path) -> str:
        """Where on the claim a path of this process is. Raises `ValueError` for one elsewhere."""
        return path.relative_to(self.root).as_posix()


@dataclass(frozen=True, slots=True)
class Files:
    """What every sandbox is given beside its volume: the agent, and a user database of its own."""

    agent: Path
    users: UserFiles


def pod_name(hand_id: str) -> str:
    """The name of a hand's pod: lower case, as names of the DNS are."""
    return f"drover-{hand_id.lower().replace('_', '-')}"


def labels(installation: str, hand_id: str) -> dict[str, str]:
    """By which a pod is found, and by which the network policy selects it."""
    return {INSTALLATION: installation, HAND: hand_id}


def pod(
    spec: SandboxSpec,
    *,
    user: int,
    image: str,
    installation: str,
    claim: Claim,
    files: Files,
    settings: ClusterSettings,
) -> dict[str, Any]:
    """A sandbox's pod. Nothing in it is a secret: whoever may read pods reads it."""
    limits = spec.limits
    memory = {
        "tmp": ("/tmp", limits.tmp_bytes),  # noqa: S108  # the sandbox's own
        "shm": ("/dev/shm", inside.SHARED_MEMORY),  # noqa: S108
        "control": (inside.CONTROL_DIRECTORY, inside.CONTROL_BYTES),
    }
    identity = {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user}
    seccomp = {"seccompProfile": {"type": "RuntimeDefault"}}
    shared = [
        *spec.mounts,
        (files.agent, inside.AGENT_DIRECTORY, False),
        (files.users.passwd, "/etc/passwd", False),
        (files.users.group, "/etc/group", False),
    ]
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-I", "-S", "-c", _ENTRY, settings.probe],
        "workingDir": "/",
        "env": [{"name": "PATH", "value": _PATH}, {"name": "LANG", "value": "C.UTF-8"}],
        "stdin": True,
        "stdinOnce": True,  # the agent sees the end of a hands process that dies
        "securityContext": {
            **identity,
            **seccomp,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "limits": {
                "memory": str(limits.memory_bytes),
                "cpu": _milli(limits.cpus),
                "ephemeral-storage": str(settings.disk),
            },
            "requests": {
                "memory": str(min(limits.memory_bytes, settings.requested_memory)),
                "cpu": _milli(min(limits.cpus, settings.requested_cpus)),
                "ephemeral-storage": str(settings.disk),
            },
        },
        "volumeMounts": [
            *(_mount(claim.sub_path(path), place, writable) for path, place, writable in shared),
            *({"name": name, "mountPath": place} for name, (place, _) in memory.items()),
        ],
    }
    told: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": settings.pod_seconds,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": HOSTNAME,
        # Names are nobody's to ask for; a pod without a name server is not taken.
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
        "securityContext": {**identity, **seccomp},
        "containers": [container],
        "volumes": [
            {"name": _VOLUME, "persistentVolumeClaim": {"claimName": claim.name}},
            *(
                {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
                for name, (_, size) in memory.items()
            ),
        ],
    }
    if settings.runtime:
        told["runtimeClassName"] = settings.runtime
    if settings.pull_secret:
        told["imagePullSecrets"] = [{"name": settings.pull_secret}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(spec.hand_id),
            "labels": labels(installation, spec.hand_id),
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        },
        "spec": told,
    }


def network_policy(installation: str) -> dict[str, Any]:
    """Forbids the installation's pods all traffic in both directions."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": f"drover-{installation}",
            "labels": {INSTALLATION: installation},
        },
        "spec": {
            "podSelector": {"matchLabels": {INSTALLATION: installation}},
            "policyTypes": ["Ingress", "Egress"],
        },
    }


def _mount(sub_path: str, place: str, writable: bool) -> dict[str, Any]:
    mount = {"name": _VOLUME, "mountPath": place, "subPath": sub_path}
    return mount if writable else {**mount, "readOnly": True}


def _milli(cpus: float) -> str:
    return f"{max(1, int(cpus * 1000))}m"
