"""What a pod's status means."""

from __future__ import annotations

from typing import Any

import pytest

from services.hands.backends.kubernetes import status


def pod(
    state: dict[str, Any] | None = None, *, deleted: bool = False, **more: Any
) -> dict[str, Any]:
    statuses = [] if state is None else [{"name": "sandbox", "state": state}]
    metadata = {"name": "p", **({"deletionTimestamp": "now"} if deleted else {})}
    return {"metadata": metadata, "status": {"containerStatuses": statuses, **more}}


def waiting(reason: str) -> dict[str, Any]:
    return pod({"waiting": {"reason": reason, "message": "because"}}, phase="Pending")


def test_running_pod_is_neither_ended_nor_without_hope() -> None:
    runs = pod({"running": {}}, phase="Running")
    assert status.running(runs)
    assert not status.ended(runs)
    assert status.hopeless(runs) == ""


@pytest.mark.parametrize(
    "reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"]
)
def test_what_will_not_start_is_told_at_once(reason: str) -> None:
    assert status.hopeless(waiting(reason)) == f"{reason}: because"


def test_what_may_start_yet_is_waited_for_and_told_in_the_end() -> None:
    assert status.hopeless(waiting("ContainerCreating")) == ""
    assert status.pending(waiting("ContainerCreating")) == "ContainerCreating: because"
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
    assert status.pending(pod(conditions=[full])) == "Unschedulable: full"
    assert status.pending({"metadata": {}}) == "no node has taken it"


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (
            pod({"terminated": {"reason": "OOMKilled", "exitCode": 137}}, phase="Failed"),
            "it used more memory than it may",
        ),
        (
            pod(phase="Failed", reason="Evicted", message="The node was low on disk"),
            "its node evicted it: The node was low on disk",
        ),
        (
            pod(phase="Failed", reason="DeadlineExceeded"),
            "it was older than a sandbox's pod may be",
        ),
        (pod({"running": {}}, deleted=True, phase="Running"), "its pod was removed"),
        (
            pod(
                {"terminated": {"reason": "Error", "exitCode": 137}},
                phase="Failed",
                conditions=[
                    {"type": "DisruptionTarget", "status": "True", "message": "preempted by x"}
                ],
            ),
            "the cluster ended it: preempted by x",
        ),
        (pod({"terminated": {"reason": "Error", "exitCode": 1}}, phase="Failed"), ""),
        (
            pod({"terminated": {"reason": "StartError", "message": "no python3"}}, phase="Failed"),
            "no python3",
        ),
    ],
)
def test_why_a_pod_ended_is_told(ended: dict[str, Any], why: str) -> None:
    assert status.ended(ended)
    assert status.why_ended(ended) == why
