"""Following a cluster's pods: nothing that is told of one is missed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from services.hands.backends.kubernetes.pods import Pods


def pod(name: str, phase: str, uid: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid}, "status": {"phase": phase}}


class Cluster:
    """Lists what there is, then tells what `events` has, then nothing more."""

    def __init__(self, events: list[tuple[str, dict[str, Any]]]) -> None:
        self._events = events
        self._over = threading.Event()
        self.told = threading.Event()

    def list_blocking(self, _selector: str) -> dict[str, Any]:
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    def watch_blocking(self, *_given: object) -> Cluster:
        return self

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield from self._events
        self.told.set()
        self._over.wait()

    def stop(self) -> None:
        self._over.set()

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.mark.parametrize("uid", ["1", "2"])
async def test_pod_that_ran_before_its_maker_heard_of_it_is_known_to_run(uid: str) -> None:
    cluster = Cluster([("ADDED", pod("b", "Pending")), ("MODIFIED", pod("b", "Running", uid))])
    pods = Pods(cast("Any", cluster), "selector")
    pods.expect(pod("a", "Pending"))
    await asyncio.to_thread(cluster.told.wait)
    await asyncio.sleep(0)  # what the thread has told is in by now
    pods.expect(pod("b", "Pending"))
    # An earlier pod of that name is no news of this one.
    assert pods.last("b").pod["status"]["phase"] == ("Running" if uid == "1" else "Pending")
    await pods.close()
