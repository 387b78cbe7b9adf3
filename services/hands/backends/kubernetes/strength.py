"""Whether the cluster made of a sandbox what it was told (CASES S14).

Admission may change a pod on its way in: add a container, a volume with a token, take a limit away.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from services.hands.backends.kubernetes import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# What is not among them may differ: the image, which may come from a mirror, and where it runs.
_POD: Final = (
    *("restartPolicy", "automountServiceAccountToken", "enableServiceLinks", "hostNetwork"),
    *("hostPID", "hostIPC", "shareProcessNamespace", "hostAliases", "dnsPolicy", "dnsConfig"),
    *("runtimeClassName", "activeDeadlineSeconds", "hostname", "securityContext", "volumes"),
    *("initContainers", "ephemeralContainers", "resourceClaims"),
)
_CONTAINER: Final = (
    *("command", "args", "workingDir", "env", "envFrom", "stdin", "stdinOnce", "tty"),
    *("securityContext", "volumeMounts", "volumeDevices", "lifecycle", "livenessProbe"),
    *("readinessProbe", "startupProbe", "ports"),
)
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_SCALES: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{name: Decimal(1000) ** power for power, name in enumerate("kMGT", 1)},
    **{f"{name}i": Decimal(1024) ** power for power, name in enumerate("KMGT", 1)},
}


def weaker(wanted: Mapping[str, Any], has: Mapping[str, Any]) -> Sequence[str]:
    """Where a pod differs from what was told in what protects; empty if nowhere."""
    return list(_differences(wanted, has))


def _differences(wanted: Mapping[str, Any], has: Mapping[str, Any]) -> Iterator[str]:
    labels = has["metadata"].get("labels") or {}
    for name, value in wanted["metadata"]["labels"].items():
        if labels.get(name) != value:
            yield f"the label {name} is {labels.get(name)}"
    told, spec = wanted["spec"], has["spec"]
    yield from (_shown(key, spec) for key in _POD if not _same(told.get(key), spec.get(key)))
    names = [container.get("name") for container in spec.get("containers") or ()]
    if names != [manifest.CONTAINER]:
        yield f"containers are {', '.join(map(str, names))}"
        return
    asked, container = told["containers"][0], spec["containers"][0]
    for key in _CONTAINER:
        if not _same(asked.get(key), container.get(key)):
            yield _shown(key, container)
    limits = (container.get("resources") or {}).get("limits") or {}
    for key, value in asked["resources"]["limits"].items():
        if not _same(value, limits.get(key)):
            yield f"the limit of {key} is {limits.get(key)}"


def _same(wanted: object, has: object) -> bool:
    """Whether two parts mean the same: what was not asked for must be absent or empty."""
    if isinstance(wanted, dict) and isinstance(has, dict):
        return all(_same(value, has.get(key)) for key, value in wanted.items()) and not any(
            value for key, value in has.items() if key not in wanted
        )
    if isinstance(wanted, list) and isinstance(has, list):
        return len(wanted) == len(has) and all(map(_same, wanted, has))
    if wanted is None:
        return not has
    if isinstance(wanted, str) and isinstance(has, str) and wanted != has:
        amount = _quantity(wanted)
        return amount is not None and amount == _quantity(has)
    return type(wanted) is type(has) and wanted == has


def _quantity(text: str) -> Decimal | None:
    """An amount of a resource, which the API server may have written another way."""
    found = _QUANTITY.fullmatch(text)
    return Decimal(found[1]) * _SCALES[found[2] or ""] if found else None


def _shown(key: str, has: Mapping[str, Any]) -> str:
    return f"{key} is {json.dumps(has.get(key))[:500]}"


def weaker_policy(
    policies: Sequence[Mapping[str, Any]],
    name: str,
    wanted: Mapping[str, Any],
    labels: Mapping[str, str],
) -> str:
    """The name of a network policy by which pods with `labels` are not cut off; empty if none is.

    `name` is that of the one that cuts them off, and `wanted` its specification.
    """
    for policy in policies:
        spec, found = policy.get("spec") or {}, str(policy["metadata"]["name"])
        if found == name:
            if not _same(wanted, spec):
                return found
        elif (spec.get("ingress") or spec.get("egress")) and _may_select(spec, labels):
            return found
    return ""


def _may_select(spec: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a policy may select pods with these labels, and others that are not known here."""
    selector = spec.get("podSelector") or {}
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions") or ():
        has, values = labels.get(rule.get("key")), rule.get("values") or ()
        fits = {
            "In": has in values,
            "NotIn": has not in values,
            "Exists": has is not None,
            "DoesNotExist": has is None,
        }
        if not fits.get(rule.get("operator"), True):
            return False
    return True
