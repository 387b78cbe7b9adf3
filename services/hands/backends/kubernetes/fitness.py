"""Whether a cluster is fit to hold sandboxes: what it must have, and must not allow (CASES S14)."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any, Final

from services.hands.backends.kubernetes import manifest
from services.hands.backends.kubernetes.strength import weaker_policy
from services.hands.backends.port import BackendUnavailable
from services.hands.domain.protections import Protection, shortfall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.hands.backends.kubernetes.api import ClusterApi
    from services.hands.backends.kubernetes.settings import ClusterSettings

NEEDED: Final = (
    *(("", "pods", verb) for verb in ("create", "get", "list", "watch", "delete")),
    # Attaching is a GET that the server may also judge as what it does.
    *(("", "pods/attach", verb) for verb in ("create", "get")),
    ("", "persistentvolumeclaims", "get"),
    ("", "namespaces", "get"),
    *(("networking.k8s.io", "networkpolicies", verb) for verb in ("create", "list")),
)
"""What the service account must be allowed in the namespace: group, resource and verb."""
_LEVELS: Final = ("privileged", "baseline", "restricted")
_ENFORCED: Final = "pod-security.kubernetes.io/enforce"
_SHARED: Final = "ReadWriteMany"
_OWN_KERNEL: Final = ("gvisor", "runsc", "kata")


async def check(api: ClusterApi, settings: ClusterSettings) -> None:
    """Raises `BackendUnavailable` for a cluster that is not fit."""
    if not settings.image:
        raise BackendUnavailable(
            "kubernetes sandboxes need an image that the cluster can pull: name it in "
            "DROVER_SANDBOX_IMAGE"
        )
    version = await api.version()
    if _numbers(version) < _numbers(settings.minimum):
        raise _unfit(
            f"it is of version {version}, and {settings.minimum} is the least allowed", "upgrade it"
        )
    allowed = await asyncio.gather(
        *(api.may(verb, group, resource) for group, resource, verb in NEEDED)
    )
    missing = [
        f"{verb} {resource}"
        for (_, resource, verb), yes in zip(NEEDED, allowed, strict=True)
        if not yes
    ]
    if missing:
        raise _unfit(
            f"in the namespace {settings.namespace} this process may not {', '.join(missing)}",
            "give its service account the role in docs/kubernetes.md",
        )
    _check_namespace(await api.namespaced(), settings)
    _check_claim(await api.claim(settings.claim), settings)
    if lacking := shortfall(settings.least, held(settings)):
        raise BackendUnavailable(
            f"kubernetes sandboxes have less than DROVER_SANDBOX_MINIMUM here. {lacking}"
        )


def held(settings: ClusterSettings) -> dict[Protection, str]:
    """Of each protection why it does not hold, nothing where it does.

    What `check` and `strength.weaker` let pass has most of them.
    """
    rows = dict.fromkeys(Protection, "")
    rows[Protection.GROUP_NAMESPACE] = "the nodes decide, and the cluster does not tell"
    if os.geteuid() != 0:
        rows[Protection.USERS] = "run Drover as root: only root can give each session a user"
        rows[Protection.PROCESSES] = (
            "run Drover as root: processes are counted by user, and a cluster cannot be told"
        )
    if not any(name in settings.runtime.lower() for name in _OWN_KERNEL):
        rows[Protection.KERNEL] = (
            "set DROVER_SANDBOX_RUNTIME to a RuntimeClass with a kernel of its own, whose name "
            f"says so: {', '.join(_OWN_KERNEL)}"
        )
    return rows


async def keep_apart(api: ClusterApi, installation: str) -> None:
    """Sees to it that no network policy lets the installation's pods reach anything.

    Raises `BackendUnavailable`. Whether policies are enforced is up to the cluster's network.
    """
    wanted = manifest.network_policy(installation)
    policies = await api.policies()
    name = wanted["metadata"]["name"]
    if not any(policy["metadata"]["name"] == name for policy in policies):
        await api.create_policy(wanted)
        policies = await api.policies()
    labels = wanted["spec"]["podSelector"]["matchLabels"]
    if weak := weaker_policy(policies, name, wanted["spec"], labels):
        raise _unfit(
            f"the network policy {weak} lets sandboxes out, for policies add up",
            "remove it, or give sandboxes a namespace of their own",
        )


def _check_namespace(namespace: Mapping[str, Any] | None, settings: ClusterSettings) -> None:
    if namespace is None:
        raise _unfit(
            f"it has no namespace {settings.namespace}",
            "make it, or name one in DROVER_KUBERNETES_NAMESPACE",
        )
    if settings.pod_security == "any":
        return
    level = (namespace["metadata"].get("labels") or {}).get(_ENFORCED, "privileged")
    if level not in _LEVELS or _LEVELS.index(level) < _LEVELS.index(settings.pod_security):
        raise _unfit(
            f"the namespace {settings.namespace} takes {level} pods, so that whoever has this "
            "process's rights has the nodes'",
            f"label it {_ENFORCED}={settings.pod_security}, or set DROVER_KUBERNETES_POD_SECURITY "
            "to any where something else sees to that",
        )


def _check_claim(claim: Mapping[str, Any] | None, settings: ClusterSettings) -> None:
    name = f"the volume claim {settings.claim}"
    if claim is None:
        raise _unfit(
            f"the namespace {settings.namespace} has not {name}",
            "make it, or name one in DROVER_KUBERNETES_VOLUME_CLAIM",
        )
    if (claim.get("status") or {}).get("phase") != "Bound":
        raise _unfit(f"{name} is not bound", "see `kubectl describe` of it")
    modes = (claim.get("status") or {}).get("accessModes") or claim["spec"].get("accessModes") or ()
    if _SHARED not in modes:
        raise _unfit(
            f"{name} is {', '.join(modes)}, and pods of all nodes share it with this process",
            f"make it {_SHARED}",
        )


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()


def _unfit(what: str, remedy: str) -> BackendUnavailable:
    return BackendUnavailable(f"the cluster is not fit for sandboxes: {what}; {remedy}")
