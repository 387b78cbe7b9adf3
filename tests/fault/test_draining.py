"""SIGTERM: health says no at once, calls are taken for a while longer, then the process ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import grpc
import httpx2
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.e2e.replicas import Replicas
from tests.fault.fleet import running_fleet

DRAIN = 10.0
PARTS = ("registry", "session-1", "hands", "vault_proxy", "brain-1", "gateway-1")
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """One of each."""
    data = tmp_path_factory.mktemp("draining")
    with running_fleet(data, None, *PARTS, DROVER_DRAIN_SECONDS=str(DRAIN)) as running:
        running.wait_ready()
        yield running


def health(fleet: Replicas, name: str) -> int:
    """What a service says of itself."""
    with grpc.insecure_channel(fleet.address(name)) as channel:
        check = health_pb2.HealthCheckRequest()
        status: int = health_pb2_grpc.HealthStub(channel).Check(check, timeout=DRAIN).status
    return status


def test_every_process_says_that_it_goes_before_it_refuses_anything(fleet: Replicas) -> None:
    began = time.monotonic()
    for name in PARTS:
        os.kill(fleet.pid(name), signal.SIGTERM)
    with httpx2.Client(base_url=fleet.url(), headers=fleet.headers, timeout=DRAIN) as http:
        fleet.wait_for(lambda: http.get("/readyz").status_code == 503, "the gateway's no", DRAIN)
        for name in PARTS[:-1]:
            fleet.wait_for(lambda: health(fleet, name) == NOT_SERVING, f"{name}'s no", DRAIN)  # noqa: B023
        assert http.get("/readyz").json()["unready"] == {"gateway": "NOT_SERVING"}
        assert http.get("/healthz").status_code == 200
        # Calls are taken, by all of them on their way; and their connections are not kept.
        for path in ("/v1/agents", "/v1/sessions"):
            answer = http.get(path)
            assert answer.status_code == 200
            assert answer.headers["connection"] == "close"
        assert time.monotonic() - began < DRAIN
        assert all(fleet.processes[name].alive for name in PARTS)
    fleet.wait_for(lambda: not any(fleet.processes[name].alive for name in PARTS), "their end", 60)
    assert [line["process"] for line in fleet.log(*PARTS, event="stopped")] == [*PARTS]
