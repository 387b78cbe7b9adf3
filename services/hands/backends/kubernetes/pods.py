"""The installation's pods as they change: one watch for all who wait for one of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from services.hands.backends.port import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from services.hands.backends.kubernetes.api import ClusterApi
    from services.hands.backends.kubernetes.connection import Watch

T = TypeVar("T")

_WATCH_SECONDS: Final = 60.0
_PAUSE: Final = 0.5
_LOOK_SECONDS: Final = 5.0
"""Who waits for so long asks for the pod itself: a watch that was cut is silent for a while."""
_STOP_SECONDS: Final = 2.0
_EARLY: Final = 64
"""Pods of which something is kept that was seen before anybody said that they were made."""

_log = structlog.get_logger("hands.kubernetes")


@dataclass(slots=True)
class Seen:
    """A pod as it was last seen; `gone`: it is no more, and nothing of it runs."""

    pod: Mapping[str, Any]
    since: float
    gone: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Pods:
    """Follows the pods that `expect` names, among all that `selector` selects."""

    def __init__(self, api: ClusterApi, selector: str) -> None:
        self._api = api
        self._selector = selector
        self._seen: dict[str, Seen] = {}
        self._early: OrderedDict[str, tuple[Mapping[str, Any], bool]] = OrderedDict()
        self._loop = asyncio.get_running_loop()
        self._closed = threading.Event()
        self._wanted = threading.Event()
        self._watch: Watch | None = None
        self._thread: threading.Thread | None = None

    def expect(self, pod: Mapping[str, Any]) -> None:
        """Follows a pod that was just made."""
        name = pod["metadata"]["name"]
        self._seen[name] = Seen(pod, time.monotonic())
        # The cluster may have told of it sooner than of its making, and may have no more to tell.
        if (early := self._early.pop(name, None)) is not None:
            self._note(name, early[0], gone=early[1])
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="pods", daemon=True)
            self._thread.start()

    def forget(self, name: str) -> None:
        """Follows a pod no longer."""
        self._seen.pop(name, None)
        if not self._seen:
            self._wanted.clear()

    async def until(self, name: str, test: Callable[[Seen], T | None]) -> T:
        """Waits until `test` says something of a pod. Bounded by the caller."""
        seen = self._seen[name]
        while True:
            seen.changed.clear()
            answer = test(seen)
            if answer is not None:
                return answer
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await seen.changed.wait()
            except TimeoutError:
                await self._look(name)

    def last(self, name: str) -> Seen:
        """A pod as it was last seen."""
        return self._seen[name]

    async def close(self) -> None:
        """Ends the watch."""
        self._closed.set()
        self._wanted.set()
        if self._watch is not None:
            self._watch.stop()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _STOP_SECONDS)

    # in the loop

    async def _look(self, name: str) -> None:
        with suppress(BackendUnavailable):
            pod = await self._api.pod(name)
            seen = self._seen.get(name)
            if seen is not None:
                self._note(name, pod or seen.pod, gone=pod is None)

    def _listed(self, pods: Mapping[str, Mapping[str, Any]], asked_at: float) -> None:
        for name, pod in pods.items():
            self._note(name, pod)
        for name, seen in self._seen.items():
            # One that was made later may not be in the list.
            if name not in pods and seen.since < asked_at:
                self._note(name, seen.pod, gone=True)

    def _note(self, name: str, pod: Mapping[str, Any], *, gone: bool = False) -> None:
        seen = self._seen.get(name)
        if seen is None:
            self._early[name] = pod, gone
            self._early.move_to_end(name)
            if len(self._early) > _EARLY:
                self._early.popitem(last=False)
            return
        if pod["metadata"].get("uid") != seen.pod["metadata"].get("uid"):
            return
        seen.pod, seen.gone = pod, gone or seen.gone
        seen.changed.set()

    # in the thread

    def _follow(self) -> None:
        while self._wanted.wait() and not self._closed.is_set():
            try:
                self._follow_once()
            except BackendUnavailable as error:
                if not self._closed.is_set():
                    _log.info("pods_not_followed", reason=str(error))
                self._closed.wait(_PAUSE)
            except Exception:  # noqa: BLE001  # whatever it was, others wait for what comes
                _log.exception("pods_not_followed")
                self._closed.wait(_PAUSE)

    def _follow_once(self) -> None:
        """A list, and what changes from then on: until the server ends it, or has forgotten it."""
        asked_at = time.monotonic()
        answer = self._api.list_blocking(self._selector)
        pods = {pod["metadata"]["name"]: pod for pod in answer.get("items") or ()}
        self._tell(self._listed, pods, asked_at)
        version = str((answer.get("metadata") or {}).get("resourceVersion") or "")
        self._watch = self._api.watch_blocking(self._selector, version, _WATCH_SECONDS)
        try:
            for kind, pod in self._watch:
                if self._closed.is_set():
                    return
                name = (pod.get("metadata") or {}).get("name", "")
                if kind == "DELETED":
                    self._tell(lambda n=name, p=pod: self._note(n, p, gone=True))
                elif kind in {"ADDED", "MODIFIED"}:
                    self._tell(self._note, name, pod)
        finally:
            self._watch.close()

    def _tell(self, what: Callable[..., None], *given: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(what, *given)
