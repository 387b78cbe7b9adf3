"""The hands process dies; the pods that it had do not outlive it (P3, F6)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.hands.settings import HandsSettings
from tests.doubles.hands_stack import contained, running
from tests.doubles.hands_waiting import eventually
from tests.doubles.kubernetes_cluster import CLAIM, IMAGE, Cluster, lacking, running_cluster
from tests.doubles.kubernetes_objects import NAMESPACE
from tests.integration.hands.conftest import HandsProcess, call


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if why := lacking():
        pytest.skip(f"no node for tests: {why}")
    with running_cluster(tmp_path, tmp_path, tls=True) as cluster:
        yield cluster


async def test_pods_of_a_killed_service_end_and_are_gone_before_the_next_is_healthy(
    cluster: Cluster, settings: HandsSettings, tmp_path: Path
) -> None:
    given = {
        "DROVER_SANDBOX": "kubernetes",
        "DROVER_SANDBOX_IMAGE": IMAGE,
        "DROVER_KUBERNETES_NAMESPACE": NAMESPACE,
        "DROVER_KUBERNETES_VOLUME_CLAIM": CLAIM,
        "DROVER_KUBERNETES_VOLUME_ROOT": str(tmp_path),
        "DROVER_HANDS_SPARE_SANDBOXES": "0",
        "KUBECONFIG": str(cluster.config),
    }
    process = HandsProcess(settings.data_dir, **given)
    await process.start()
    result: Any = await process.client.Execute(call("c1", command="echo kept >f; sleep 1000 &"))
    assert not result.is_error
    [pod] = cluster.pods()
    processes = contained(pod)
    assert len(processes) >= 4
    await process.end(signal.SIGKILL)
    await eventually(lambda: not any(map(running, processes)))
    assert cluster.pods() == [pod]
    after = HandsProcess(settings.data_dir, **given)
    await after.start()
    assert cluster.pods() == []
    kept = await after.client.Execute(call("c2", command="cat f"))
    assert kept.content[0].text.text.startswith("kept")
    assert await after.end(signal.SIGTERM)
    assert cluster.pods() == []
