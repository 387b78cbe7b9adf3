"""A pod that the cluster made weaker than it was told is not taken for it (CASES S14)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from services.hands.backends.kubernetes import manifest
from services.hands.backends.kubernetes.strength import weaker, weaker_policy
from tests.doubles.kubernetes_rules import admitted
from tests.unit.hands.test_kubernetes_manifest import told

Change = Callable[[dict[str, Any]], object]
LABELS = {manifest.INSTALLATION: "abc"}
POLICY = manifest.network_policy("abc")


def container(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


def test_pod_with_what_every_server_adds_is_as_strong() -> None:
    wanted = told()
    has = admitted(copy.deepcopy(wanted))
    container(has)["image"] = "mirror.example/team/box@sha256:00"
    container(has)["resources"]["limits"]["memory"] = "512Mi"
    has["spec"]["volumes"][1]["emptyDir"]["sizeLimit"] = "8Mi"
    has["spec"]["nodeName"] = "node-1"
    assert weaker(wanted, has) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda pod: pod["spec"].update(hostNetwork=True), "hostNetwork is true"),
        (lambda pod: pod["spec"].update(hostPID=True), "hostPID"),
        (lambda pod: pod["spec"].update(shareProcessNamespace=True), "shareProcessNamespace"),
        (lambda pod: pod["spec"].pop("automountServiceAccountToken"), "automountServiceAccount"),
        (lambda pod: pod["spec"].update(dnsPolicy="ClusterFirst"), "dnsPolicy"),
        (lambda pod: pod["spec"].update(initContainers=[{"name": "x"}]), "initContainers"),
        (lambda pod: pod["spec"].update(ephemeralContainers=[{"name": "x"}]), "ephemeral"),
        (lambda pod: pod["spec"].pop("activeDeadlineSeconds"), "activeDeadlineSeconds"),
        (lambda pod: pod["spec"].update(runtimeClassName="other"), "runtimeClassName"),
        (lambda pod: pod["spec"]["containers"].append({"name": "proxy"}), "sandbox, proxy"),
        (lambda pod: pod["spec"]["volumes"].append({"name": "t", "projected": {}}), "volumes"),
        (lambda pod: pod["spec"]["securityContext"].update(fsGroup=1), "securityContext"),
        (lambda pod: pod["metadata"]["labels"].pop(manifest.INSTALLATION), "the label drover"),
        (lambda pod: container(pod)["env"].append({"name": "A", "value": "B"}), "env is"),
        (lambda pod: container(pod)["resources"]["limits"].pop("memory"), "limit of memory"),
        (lambda pod: container(pod)["resources"]["limits"].update(cpu="2"), "limit of cpu"),
        (lambda pod: container(pod)["securityContext"].pop("runAsNonRoot"), "securityContext"),
        (
            lambda pod: container(pod)["securityContext"].pop("allowPrivilegeEscalation"),
            "securityContext",
        ),
        (
            lambda pod: container(pod)["securityContext"]["capabilities"].update(add=["KILL"]),
            "securityContext",
        ),
        (
            lambda pod: container(pod)["securityContext"].update(procMount="Unmasked"),
            "securityContext",
        ),
        (lambda pod: container(pod)["volumeMounts"][1].pop("readOnly"), "volumeMounts"),
        (lambda pod: container(pod).update(command=["sh"]), "command"),
        (lambda pod: container(pod).update(stdinOnce=False), "stdinOnce"),
    ],
)
def test_whatever_is_weaker_is_named(change: Change, text: str) -> None:
    wanted = told()
    has = copy.deepcopy(wanted)
    change(has)
    assert text in "; ".join(weaker(wanted, has))


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "other"}, "spec": spec}


@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"matchLabels": LABELS},
        {"matchExpressions": [{"key": manifest.HAND, "operator": "Exists"}]},
        {"matchExpressions": [{"key": manifest.INSTALLATION, "operator": "In", "values": ["abc"]}]},
        {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    ],
)
def test_policies_add_up_so_one_that_lets_out_is_named(selector: dict[str, Any]) -> None:
    labels = manifest.labels("abc", "hand_1")
    name, spec = POLICY["metadata"]["name"], POLICY["spec"]
    lets_out = policy(podSelector=selector, policyTypes=["Egress"], egress=[{}])
    assert weaker_policy([POLICY, lets_out], name, spec, labels) == "other"
    cuts_off = policy(podSelector=selector, policyTypes=["Egress"])
    assert weaker_policy([POLICY, cuts_off], name, spec, labels) == ""


def test_policies_of_others_and_a_changed_one_of_ours_are_told_apart() -> None:
    name, spec = POLICY["metadata"]["name"], POLICY["spec"]
    theirs = policy(podSelector={"matchLabels": {"app": "web"}}, egress=[{}])
    assert weaker_policy([POLICY, theirs], name, spec, LABELS) == ""
    changed = copy.deepcopy(POLICY)
    changed["spec"]["egress"] = [{}]
    assert weaker_policy([changed], name, spec, LABELS) == name
