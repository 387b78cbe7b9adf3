"""A running pod."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.backends.kubernetes import manifest, status, stream
from services.hands.backends.port import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from services.hands.backends.kubernetes.api import ClusterApi
    from services.hands.backends.kubernetes.pods import Pods, Seen

_STATUS_SECONDS: Final = 2.0
"""The stream may end before the cluster knows why."""
_GONE_SECONDS: Final = 20.0
_PAUSE: Final = 0.25

_log = structlog.get_logger("hands.kubernetes")


class KubernetesSandbox:
    """A pod that runs, and the stream to its agent. `clean` is called once it has ended."""

    advice = ""
    has_way_out = False  # a socket of this machine is in no pod

    def __init__(
        self,
        api: ClusterApi,
        pods: Pods,
        name: str,
        resource_limits: Mapping[str, int],
        clean: Callable[[bool], None],
    ) -> None:
        self.resource_limits = resource_limits
        self._api = api
        self._pods = pods
        self._name = name
        self._clean = clean
        self._ended: str | None = None
        self._ending = asyncio.Lock()

    async def open(self, *, seconds: float) -> None:
        """Attaches to the pod and lets it begin. Raises `BackendUnavailable`."""
        endpoint, path = await self._api.attachment(self._name, manifest.CONTAINER)
        self.reader, self.writer, self._stream = await stream.opened(
            endpoint, path, seconds=seconds
        )
        self.writer.write(manifest.GO)

    async def confine(self) -> None:
        """Nothing: a container is under its limits from the start."""

    async def kill(self) -> None:
        """Ends every process and removes the pod."""
        await self._end()

    async def ended(self) -> str:
        """Waits until no process is left; why it ended, or empty."""
        await self._stream.ended.wait()
        return await self._end()

    async def _end(self) -> str:
        async with self._ending:
            if self._ended is None:
                why = await self._why() if self._stream.ended.is_set() else ""
                self.writer.close()  # its agent ends by that, and all of the pod with it
                gone = await removed(self._api, self._pods, self._name)
                self._ended = why or ("" if gone else "its cluster is away")
                self._clean(gone)
                with suppress(OSError):  # it was cut off
                    await self.writer.wait_closed()
        return self._ended

    async def _why(self) -> str:
        """Why the pod ended by itself, if the cluster knows."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_SECONDS):
                await self._pods.until(
                    self._name, lambda seen: seen.gone or status.ended(seen.pod) or None
                )
        seen = self._pods.last(self._name)
        if seen.gone or status.ended(seen.pod):
            return status.why_ended(seen.pod) or ("its pod was removed" if seen.gone else "")
        try:
            pod = await self._api.pod(self._name)
        except BackendUnavailable as error:
            return str(error)
        if pod is None:
            return "its pod was removed"
        return status.why_ended(pod) or "the API server let go of its stream"


async def removed(api: ClusterApi, pods: Pods, name: str) -> bool:
    """Has a pod ended, and waits until its node has said that nothing of it runs.

    False when that was not said in time.
    """
    why = "its node does not say that it has ended"
    with suppress(TimeoutError):
        async with asyncio.timeout(_GONE_SECONDS):
            while not pods.last(name).gone:
                try:
                    if not await api.delete_pod(name):
                        return True
                    await pods.until(name, _gone)
                except BackendUnavailable as error:
                    why = str(error)
                    await asyncio.sleep(_PAUSE)
            return True
    _log.error("pod_left", pod=name, reason=why)
    return False


def _gone(seen: Seen) -> bool | None:
    return seen.gone or None
