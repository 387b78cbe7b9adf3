"""What a pod's status says: whether it runs, why it cannot, why it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Waiting for these is in vain; a pod that is asked for next may find them mended.
_HOPELESS: Final = frozenset(
    (
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    )
)
_ENDED: Final = frozenset(("Succeeded", "Failed"))
_OUT_OF_MEMORY: Final = "OOMKilled"
_REASONS: Final = {
    "Evicted": "its node evicted it",
    "DeadlineExceeded": "it was older than a sandbox's pod may be",
    "NodeLost": "its node was lost",
    "Preempting": "a pod that matters more took its place",
    "Shutdown": "its node was shut down",
    "NodeShutdown": "its node was shut down",
    "Terminated": "its node was shut down",
}


def running(pod: Mapping[str, Any]) -> bool:
    """Whether its container runs."""
    return "running" in _state(pod)


def ended(pod: Mapping[str, Any]) -> bool:
    """Whether no process of it is left, or all of them are being ended."""
    return (
        _status(pod).get("phase") in _ENDED
        or "terminated" in _state(pod)
        or bool(pod["metadata"].get("deletionTimestamp"))
    )


def hopeless(pod: Mapping[str, Any]) -> str:
    """Why it will not run, however long one waits; empty while it may."""
    if ended(pod):
        return why_ended(pod) or "its pod ended before it ran"
    waiting = _state(pod).get("waiting") or {}
    return _told(waiting) if waiting.get("reason") in _HOPELESS else ""


def pending(pod: Mapping[str, Any]) -> str:
    """What a pod that does not run yet waits for."""
    for condition in _status(pod).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _told(condition)
    waiting = _state(pod).get("waiting")
    return _told(waiting) if waiting else "no node has taken it"


def why_ended(pod: Mapping[str, Any]) -> str:
    """Why it ended, as far as the cluster says; empty for an end that nobody forced."""
    status = _status(pod)
    terminated = _state(pod).get("terminated") or {}
    if terminated.get("reason") == _OUT_OF_MEMORY:
        return "it used more memory than it may"
    if reason := status.get("reason"):
        known = _REASONS.get(reason)
        return ": ".join(filter(None, (known or f"{reason}", status.get("message"))))
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return f"the cluster ended it: {condition.get('message') or condition.get('reason')}"
    if pod["metadata"].get("deletionTimestamp"):
        return "its pod was removed"
    if terminated.get("message"):
        return str(terminated["message"])
    return ""


def _status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return pod.get("status") or {}


def _state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = _status(pod).get("containerStatuses") or ()
    return (containers[0].get("state") or {}) if containers else {}


def _told(part: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (part.get("reason"), part.get("message"))))
