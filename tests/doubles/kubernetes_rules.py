"""What an API server takes: recorded schemas, strictly, and the rules that no schema says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

_SCHEMAS = Path(__file__).with_name("kubernetes_schemas.json")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(r"([-a-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_HOST_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_SCALES = {"m": Decimal("0.001"), "": 1, "k": 1000, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@cache
def _validator(kind: str) -> Any:
    definitions = json.loads(_SCHEMAS.read_text())["$defs"]
    return jsonschema_rs.validator_for({"$ref": f"#/$defs/{kind}", "$defs": definitions})


def unknown(kind: str, given: dict[str, Any]) -> list[str]:
    """Where an object is not what its schema says: unknown fields, wrong types, missing ones."""
    return [
        f"{'.'.join(map(str, error.instance_path))}: {error.message}"
        for error in _validator(kind).iter_errors(given)
    ]


def amount(quantity: str) -> Decimal:
    """A quantity as a number. Raises `ValueError`."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        msg = f"{quantity!r} is no quantity"
        raise ValueError(msg)
    return Decimal(found[1]) * {**_SCALES, **_BINARY}[found[2] or ""]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def amiss(given: dict[str, Any]) -> list[str]:
    """What else the server refuses in a pod or a policy."""
    metadata = given.get("metadata", {})
    found = []
    if not _NAME.fullmatch(metadata.get("name", "")):
        found.append("metadata.name: Invalid value")
    for name, value in metadata.get("labels", {}).items():
        if not _LABEL_NAME.fullmatch(name) or not _LABEL.fullmatch(value):
            found.append(f"metadata.labels: Invalid value: {name}={value}")
    if given.get("kind") == "Pod":
        found += _amiss_in_pod(given["spec"])
    return found


def _amiss_in_pod(spec: dict[str, Any]) -> Iterator[str]:
    volumes = [volume["name"] for volume in spec.get("volumes", ())]
    if len(set(volumes)) != len(volumes):
        yield "spec.volumes: Duplicate value"
    if not _HOST_NAME.fullmatch(spec.get("hostname", "x")):
        yield "spec.hostname: Invalid value"
    if spec.get("dnsPolicy") == "None" and not spec.get("dnsConfig", {}).get("nameservers"):
        yield "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver"
    if spec.get("activeDeadlineSeconds", 1) < 1:
        yield "spec.activeDeadlineSeconds: Invalid value"
    if not spec["containers"]:
        yield "spec.containers: Required value"
    for container in spec["containers"]:
        yield from _amiss_in_container(container, volumes)


def _amiss_in_container(container: dict[str, Any], volumes: list[str]) -> Iterator[str]:
    if not _HOST_NAME.fullmatch(container["name"]):
        yield "containers.name: Invalid value"
    if not container.get("image"):
        yield "containers.image: Required value"
    yield from _amiss_in_mounts(container.get("volumeMounts", []), volumes)
    security = container.get("securityContext", {})
    if security.get("privileged") and security.get("allowPrivilegeEscalation") is False:
        yield "containers.securityContext: cannot set allowPrivilegeEscalation to false"
    if security.get("runAsNonRoot") and security.get("runAsUser") == 0:
        yield "containers.securityContext: runAsUser breaks non-root policy"
    resources = container.get("resources", {})
    limits = resources.get("limits", {})
    for name, requested in resources.get("requests", {}).items():
        if name in limits and amount(requested) > amount(limits[name]):
            yield f"containers.resources.requests: must be at most the limit of {name}"


def _amiss_in_mounts(mounts: list[dict[str, Any]], volumes: list[str]) -> Iterator[str]:
    if len({mount["mountPath"] for mount in mounts}) != len(mounts):
        yield "containers.volumeMounts: must be unique"
    for mount in mounts:
        sub_path = mount.get("subPath", "")
        if mount["name"] not in volumes:
            yield f"containers.volumeMounts.name: Not found: {mount['name']}"
        if sub_path.startswith("/") or ".." in sub_path.split("/"):
            yield f"containers.volumeMounts.subPath: Invalid value: {sub_path}"


def admitted(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod with what the server adds where nothing is said."""
    spec = pod["spec"]
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("tolerations", [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}])
    for container in spec["containers"]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        cpu = container.get("resources", {}).get("limits", {}).get("cpu", "")
        if cpu.endswith("000m"):
            container["resources"]["limits"]["cpu"] = cpu.removesuffix("000m")
        if spec.get("automountServiceAccountToken") is not False:
            mount = {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io"}
            container.setdefault("volumeMounts", []).append(mount)
            spec.setdefault("volumes", []).append({"name": "kube-api-access", "projected": {}})
    return pod
