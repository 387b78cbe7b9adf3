"""The few things that Drover asks of a cluster, in one namespace.

The client blocks: every call is in one of few threads. Every call has a time-out of its own; one
that the API server puts off is made again until that is over.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode

from services.hands.backends.kubernetes.errors import ClusterAway, ClusterRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from services.hands.backends.kubernetes.connection import Connection, Endpoint, Watch
    from services.hands.backends.kubernetes.settings import ClusterSettings

T = TypeVar("T")

CORE: Final = "/api/v1"
NETWORKING: Final = "/apis/networking.k8s.io/v1"
_AUTHORIZATION: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_NOT_FOUND: Final = 404
_PUT_OFF: Final = frozenset((429, 503))
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0


class ClusterApi:
    """Pods and what belongs to them in the namespace that the settings name."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.namespace = settings.namespace
        self._config = settings.config
        self._seconds = settings.seconds
        self._count = settings.threads
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="kubernetes")
        self._connection: Connection | None = None
        self._connecting = Lock()

    async def version(self) -> str:
        """The API server's version, such as v1.33.1."""
        return str((await self._call("GET", "/version")).get("gitVersion"))

    async def may(self, verb: str, group: str, resource: str) -> bool:
        """Whether this process may do something in the namespace."""
        name, _, sub = resource.partition("/")
        asked = {"namespace": self.namespace, "verb": verb, "group": group, "resource": name}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**asked, "subresource": sub} if sub else asked},
        }
        answer = await self._call("POST", _AUTHORIZATION, body=body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def namespaced(self) -> Mapping[str, Any] | None:
        """The namespace itself; None if there is none."""
        return await self._found(f"{CORE}/namespaces/{quote(self.namespace)}")

    async def claim(self, name: str) -> Mapping[str, Any] | None:
        """A claim of the namespace; None if there is none."""
        return await self._found(self._path("persistentvolumeclaims", name))

    async def policies(self) -> Sequence[Mapping[str, Any]]:
        """All network policies of the namespace."""
        answer = await self._call("GET", self._path("networkpolicies", group=NETWORKING))
        return list(answer.get("items") or ())

    async def create_policy(self, policy: Mapping[str, Any]) -> None:
        """Makes a network policy. Nothing happens if there is one of its name."""
        try:
            await self._create(self._path("networkpolicies", group=NETWORKING), policy)
        except ClusterRefused as refusal:
            if refusal.reason != "AlreadyExists":
                raise

    async def create_pod(self, pod: Mapping[str, Any]) -> Mapping[str, Any]:
        """Makes a pod, as the API server then has it."""
        return await self._create(self._path("pods"), pod)

    async def pod(self, name: str) -> Mapping[str, Any] | None:
        """A pod; None if there is none."""
        return await self._found(self._path("pods", name))

    async def pods(self, selector: str) -> Sequence[Mapping[str, Any]]:
        """All pods with certain labels."""
        answer = await self._call("GET", self._path("pods"), {"labelSelector": selector})
        return list(answer.get("items") or ())

    async def delete_pod(self, name: str) -> bool:
        """Has a pod ended; False if there is none.

        It is there until its node says that nothing of it runs any more. Not with a grace of 0,
        which would have the API server forget it while it runs.
        """
        try:
            await self._call("DELETE", self._path("pods", name), {"gracePeriodSeconds": "1"})
        except ClusterRefused as refusal:
            if refusal.status != _NOT_FOUND:
                raise
            return False
        return True

    async def events(self, pod_name: str) -> Sequence[str]:
        """What the cluster noted of a pod, oldest first."""
        selector = f"involvedObject.name={pod_name},type=Warning"
        answer = await self._call("GET", self._path("events"), {"fieldSelector": selector})
        return [str(event.get("message") or "") for event in answer.get("items") or ()]

    async def attachment(self, pod_name: str, container: str) -> tuple[Endpoint, str]:
        """Where and with which path one attaches to a container."""
        query = urlencode(
            {"container": container, "stdin": "true", "stdout": "true", "stderr": "true"}
        )
        path = f"{self._path('pods', pod_name)}/attach?{query}"
        return await self._do(lambda connection: connection.endpoint()), path

    def list_blocking(self, selector: str) -> Mapping[str, Any]:
        """As `pods`, for a thread of one's own: the whole answer, with its version."""
        return self._connected().call("GET", self._path("pods"), {"labelSelector": selector})

    def watch_blocking(self, selector: str, version: str, seconds: float) -> Watch:
        """Follows those pods from a version on, for a thread of one's own."""
        query = {"labelSelector": selector, "resourceVersion": version}
        return self._connected().watch(self._path("pods"), query, seconds)

    async def close(self) -> None:
        """Ends the threads."""
        await asyncio.to_thread(self._threads.shutdown)
        if self._connection is not None:
            self._connection.close()

    def _path(self, resource: str, name: str = "", group: str = CORE) -> str:
        path = f"{group}/namespaces/{quote(self.namespace)}/{resource}"
        return f"{path}/{quote(name)}" if name else path

    async def _found(self, path: str) -> Mapping[str, Any] | None:
        try:
            return await self._call("GET", path)
        except ClusterRefused as refusal:
            if refusal.status == _NOT_FOUND:
                return None
            raise

    async def _create(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        # Strict: a field that this server does not know may be one that protects.
        return await self._call("POST", path, {"fieldValidation": "Strict"}, body)

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        deadline = time.monotonic() + self._seconds
        again = method != "POST"
        while True:
            try:
                return await self._do(lambda connection: connection.call(method, path, query, body))
            except ClusterRefused as refusal:
                # A conflict of a POST is not the object's: it is about a quota, and passes.
                passing = refusal.status in _PUT_OFF or refusal.reason == "Conflict"
                pause = min(refusal.retry_after or _PAUSE, _LONGEST_PAUSE)
                if not passing or time.monotonic() + pause >= deadline:
                    raise
            except ClusterAway:
                # An answer that was cut off: asked once more, if that does not do anything twice.
                if not again or time.monotonic() + _PAUSE >= deadline:
                    raise
                again, pause = False, _PAUSE
            await asyncio.sleep(pause)

    async def _do(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: work(self._connected())
        )

    def _connected(self) -> Connection:
        with self._connecting:
            if self._connection is None:
                from services.hands.backends.kubernetes.connection import (  # noqa: PLC0415
                    Connection,  # slow to import
                )

                self._connection = Connection(
                    self._config, seconds=self._seconds, connections=self._count + 1
                )
            return self._connection
