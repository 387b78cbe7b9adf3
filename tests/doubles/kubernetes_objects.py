"""What the API server of the tests holds, and the node that does what its pods say."""

from __future__ import annotations

import asyncio
import copy
import itertools
from pathlib import Path
from typing import Any

from services.hands.backends.cgroup import ControlGroups
from tests.doubles import kubernetes_rules as rules
from tests.doubles.kubernetes_node import Container

NAMESPACE = "sandboxes"


class Refusal(Exception):  # noqa: N818  # an answer
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class Objects:
    """Objects in memory, their changes for those who watch, and the life of each pod."""

    def __init__(self, claims: dict[str, Path], groups: ControlGroups) -> None:
        self.claims = claims
        self.groups = groups
        self.images = {"drover/sandbox"}
        self.empty_images: set[str] = set()
        self.node_full = False
        self.node_away = False
        self.enforces = True
        self.port = 0
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.containers: dict[str, Container] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.watches: set[asyncio.Queue[tuple[str, dict[str, Any]]]] = set()
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.oldest = 0
        self._numbers = itertools.count(1)

    def now(self) -> str:
        """The version of all that there is."""
        return str(next(self._numbers))

    def put(self, resource: str, namespace: str, made: dict[str, Any]) -> dict[str, Any]:
        name = made["metadata"]["name"]
        if (resource, namespace, name) in self.objects:
            raise Refusal(409, "AlreadyExists", f'{resource} "{name}" already exists')
        made["metadata"] |= {
            "namespace": namespace,
            "uid": f"uid-{next(self._numbers)}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        self.objects[resource, namespace, name] = made
        self.changed("ADDED", resource, made)
        return made

    def changed(self, kind: str, resource: str, what: dict[str, Any]) -> None:
        number = next(self._numbers)
        what["metadata"]["resourceVersion"] = str(number)
        if resource != "pods":
            return
        seen = copy.deepcopy(what)
        self.history.append((number, kind, seen))
        for watch in self.watches:
            watch.put_nowait((kind, seen))

    def pod(self, name: str) -> dict[str, Any] | None:
        return self.objects.get(("pods", NAMESPACE, name))

    def expire(self) -> None:
        """Forgets what has changed: who watches, and who would go on from there, is told so."""
        self.oldest = next(self._numbers)
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        for watch in self.watches:
            watch.put_nowait(("ERROR", gone))

    def set_status(self, name: str, **changes: Any) -> None:
        pod = self.pod(name)
        assert pod is not None
        pod["status"] |= changes
        self.changed("MODIFIED", "pods", pod)

    def overdue(self, name: str) -> None:
        pod = self.pod(name)
        assert pod is not None
        self._expired(pod, self.containers[name])

    def evict(self, name: str, message: str) -> None:
        self.set_status(name, phase="Failed", reason="Evicted", message=message)
        self.containers[name].kill()

    def begin(self, pod: dict[str, Any]) -> None:
        task = asyncio.ensure_future(self._run(pod))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _waits(self, pod: dict[str, Any], reason: str, message: str) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        status = {"phase": "Pending", "containerStatuses": [{"name": "sandbox", "state": state}]}
        pod["status"] = status
        self.changed("MODIFIED", "pods", pod)

    async def _run(self, pod: dict[str, Any]) -> None:
        name, image = pod["metadata"]["name"], pod["spec"]["containers"][0]["image"]
        if self.node_full:
            full = "0/1 nodes are available: 1 Insufficient memory."
            unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            pod["status"]["conditions"] = [{**unscheduled, "message": full}]
            self.changed("MODIFIED", "pods", pod)
            event = {"metadata": {"name": f"{name}.1"}, "involvedObject": {"name": name}}
            event |= {"type": "Warning", "message": "FailedScheduling: no room"}
            self.put("events", NAMESPACE, event)
            return
        if image in self.empty_images:
            lacking = 'exec: "python3": executable file not found in $PATH'
            self._terminated(pod, 128, "StartError", lacking)
            return
        if image not in self.images:
            self._waits(pod, "ErrImagePull", f"failed to pull image {image}: not found")
            return
        container = Container(pod, self.claims, self.groups, self.port)
        if wrong := container.mounted_wrong():
            self._terminated(pod, 128, "StartError", wrong)
            return
        await container.start(cut_off=self._cut_off(pod))
        self.containers[name] = container
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        pod["status"] = {
            "phase": "Running",
            "containerStatuses": [{"name": "sandbox", "ready": True, "state": state}],
        }
        self.changed("MODIFIED", "pods", pod)
        deadline = asyncio.get_running_loop().call_later(
            pod["spec"].get("activeDeadlineSeconds", 1 << 30), self._expired, pod, container
        )
        try:
            code, out_of_memory = await container.ended()
        except asyncio.CancelledError:
            container.kill()
            await container.ended()
            raise
        finally:
            deadline.cancel()
        del self.containers[name]
        reason = "OOMKilled" if out_of_memory and code else "Error" if code else "Completed"
        self._terminated(pod, code, reason)
        if pod["metadata"].get("deletionTimestamp") and not self.node_away:
            self._remove(pod)

    def _terminated(self, pod: dict[str, Any], code: int, reason: str, message: str = "") -> None:
        ended = {"exitCode": code, "reason": reason, "message": message}
        pod["status"] |= {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "sandbox", "state": {"terminated": ended}}],
        }
        self.changed("MODIFIED", "pods", pod)

    def _expired(self, pod: dict[str, Any], container: Container) -> None:
        pod["status"] |= {"reason": "DeadlineExceeded", "message": "Pod was active on the node"}
        container.kill()

    def _cut_off(self, pod: dict[str, Any]) -> bool:
        labels = pod["metadata"].get("labels", {})
        return self.enforces and any(
            rules.selects(policy["spec"]["podSelector"], labels)
            and not policy["spec"].get("egress")
            for (resource, _, _), policy in self.objects.items()
            if resource == "networkpolicies"
        )

    def _remove(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        if self.objects.pop(("pods", metadata["namespace"], metadata["name"]), None) is not None:
            self.changed("DELETED", "pods", pod)

    def delete(self, pod: dict[str, Any], grace: int) -> None:
        container = self.containers.get(pod["metadata"]["name"])
        # Whatever runs: of 0 nobody is asked. A node that is away tells of no end.
        if grace == 0 or (container is None and not self.node_away):
            self._remove(pod)
            if container is not None:
                container.kill()
        elif not pod["metadata"].get("deletionTimestamp"):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
            self.changed("MODIFIED", "pods", pod)
            if container is not None and not self.node_away:
                asyncio.get_running_loop().call_later(grace, container.kill)
