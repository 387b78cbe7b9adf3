"""What operators ask the gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chassis.grpc.server import GrpcServer
from chassis.telemetry import tracing
from gateway.main import build
from gateway.overview import TICK_SECONDS, TICKS
from gateway.processes import kind
from gateway.status import Readiness
from tests.doubles.platform import PROCESSES, TOKEN, Platform
from tests.doubles.standing import PromptExit
from tests.integration.gateway.conftest import KEY, Gateway, settings

NOBODY = {"x-api-key": "", "anthropic-beta": ""}


async def test_probes_need_no_key_and_no_name(gateway: Gateway) -> None:
    headers = {**NOBODY, "host": "10.1.2.3"}
    assert (await gateway.http.get("/healthz", headers=headers)).json() == {"status": "ok"}
    assert (await gateway.http.get("/readyz", headers=headers)).json() == {"status": "ready"}


@pytest.mark.parametrize("service", sorted({kind(process) for process in PROCESSES}))
async def test_the_stack_is_ready_only_while_one_of_every_service_answers(
    gateway: Gateway, service: str
) -> None:
    *others, last = [process for process in PROCESSES if kind(process) == service]
    for process in others:  # a brain that is replaced, say, makes no gateway unready
        await gateway.platform.stop(process)
        assert (await gateway.http.get("/readyz")).status_code == 200
    await gateway.platform.stop(last)
    response = await gateway.http.get("/readyz")
    assert response.status_code == 503
    assert list(response.json()["unready"]) == [*others, last]
    assert (await gateway.http.get("/healthz")).status_code == 200

    await gateway.platform.start(last)
    async with asyncio.timeout(30):
        while (await gateway.http.get("/readyz")).status_code != 200:
            pass


async def test_replica_that_goes_makes_no_gateway_unready(
    tmp_path: Path, platform: Platform
) -> None:
    async with PromptExit() as stack:
        going = GrpcServer("127.0.0.1:0", TOKEN, reflection=False)
        await going.start()
        stack.push_async_callback(going.stop, 0)
        await going.report(serving=False)
        both = f"{platform.addresses['session']},{going.address}"
        server = await build(settings(tmp_path, platform, session_address=both), stack)
        http = httpx2.AsyncClient(base_url=f"http://{server.address}", timeout=30)
        async with http, asyncio.timeout(30):
            while (await http.get("/readyz")).status_code != 200:
                pass  # it may be connected to the one that goes alone
            answers = [(await http.get("/readyz")).status_code for _ in range(8)]
    assert answers == [200] * 8


async def test_what_is_not_ready_is_named_in_the_log_once(gateway: Gateway) -> None:
    with structlog.testing.capture_logs() as lines:
        await gateway.http.get("/readyz")
        await gateway.platform.stop("hands")
        for _ in range(2):
            await gateway.http.get("/readyz")
    told = [line for line in lines if line["event"] in {"ready", "not_ready"}]
    assert [line["waits_for"] for line in told] == [{"hands": "UNAVAILABLE"}]


async def test_however_many_ask_the_services_are_asked_by_one_at_a_time() -> None:
    looks, answering = 0, asyncio.Event()

    class Services:
        async def unready(self) -> dict[str, str]:
            nonlocal looks
            looks += 1
            found = {"hands": "UNAVAILABLE"} if looks == 1 else {}
            await answering.wait()
            return found

    ready: Any = Readiness(Services())  # type: ignore[arg-type]
    first = asyncio.ensure_future(ready(None, {}))
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(ready(None, {})) for _ in range(20)]
    await asyncio.sleep(0)
    answering.set()
    async with asyncio.timeout(30):
        assert (await first).status_code == 503
        assert {(await one).status_code for one in later} == {200}
    assert looks == 2  # what the first one found was older than the others' question


async def test_every_process_is_told_with_its_release_and_whose_key_was_shown(
    gateway: Gateway,
) -> None:
    await gateway.platform.stop("brain-2")
    told = (await gateway.http.get("/status")).json()
    assert told["key"]["workspace_id"] == "wrkspc_default"
    assert told["key"]["id"].startswith("apikey_")
    assert KEY not in str(told)
    processes = {one["name"]: one for one in told["processes"]}
    assert processes["session"]["address"] == gateway.platform.addresses["session"]
    assert processes["session"]["version"] == told["version"]
    # Half of what the question took, at the most: both have the same clock.
    assert abs(processes["session"]["clock_ahead_seconds"]) < 15
    states = {name: one["state"] for name, one in processes.items()}
    gone = states.pop("brain")  # what does not answer has not said which one it is
    assert states == dict.fromkeys(set(PROCESSES) - {"brain-2"}, "SERVING")
    assert gone == "UNAVAILABLE"
    assert (await gateway.http.get("/status", headers=NOBODY)).status_code == 401


async def test_ticks_come_one_by_one(gateway: Gateway) -> None:
    clock = asyncio.get_running_loop().time
    async with gateway.http.stream("GET", "/status/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.aiter_lines()
        at = [clock() async for line in lines if line.startswith("data:")]
    assert len(at) == TICKS
    assert at[-1] - at[0] > TICK_SECONDS


async def test_metrics_count_by_route_and_never_by_path(gateway: Gateway) -> None:
    await gateway.http.get("/v1/agents/agent_secretly")
    await gateway.http.get("/wp-login.php")
    text = (await gateway.http.get("/metrics")).text
    assert (
        'drover_http_requests_total{method="GET",route="/v1/agents/{agent_id}",status="200"} 1.0'
        in text
    )
    assert 'drover_http_requests_total{method="GET",route="unmatched",status="404"} 1.0' in text
    assert "drover_http_request_seconds_bucket" in text
    assert "drover_http_open_streams 0.0" in text
    assert "agent_secretly" not in text


async def test_the_description_is_served_with_a_page_to_read_it(gateway: Gateway) -> None:
    description = await gateway.http.get("/openapi.json", headers=NOBODY)
    assert description.json()["openapi"] == "3.1.0"
    page = await gateway.http.get("/docs", headers=NOBODY)
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "//cdn" not in page.text
    assert "https://" not in page.text


async def test_a_request_is_one_log_line_without_secrets(gateway: Gateway) -> None:
    with structlog.testing.capture_logs() as lines:
        await gateway.http.get("/v1/agents/agent_1?version=1")
    (line,) = [line for line in lines if line["event"] == "request"]
    assert line["route"] == "/v1/agents/{agent_id}"
    assert (line["method"], line["status"]) == ("GET", 200)
    assert KEY not in repr(lines)


@pytest.mark.parametrize("route", ["/healthz", "/readyz", "/metrics"])
async def test_probes_do_not_fill_the_log(gateway: Gateway, route: str) -> None:
    with structlog.testing.capture_logs() as lines:
        await gateway.http.get(route)
        await gateway.http.get("/v1/agents/agent_1")
    levels = {line["route"]: line["log_level"] for line in lines if line["event"] == "request"}
    assert levels == {route: "debug", "/v1/agents/{agent_id}": "info"}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_provider", provider)
    return exporter


async def test_a_request_is_one_server_span_in_the_callers_trace(
    gateway: Gateway, spans: InMemorySpanExporter
) -> None:
    trace_id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    await gateway.http.get("/v1/agents/a", headers={"traceparent": f"00-{trace_id}-{parent}-01"})
    await gateway.http.get("/nowhere")

    found: dict[str, Any] = {span.name: span for span in spans.get_finished_spans()}
    http = found["GET /v1/agents/{agent_id}"]
    assert f"{http.context.trace_id:032x}" == trace_id
    assert f"{http.parent.span_id:016x}" == parent
    assert http.kind.name == "SERVER"
    assert http.attributes["http.response.status_code"] == 200
    rpc = next(span for name, span in found.items() if name.endswith("AgentService/GetAgent"))
    assert rpc.context.trace_id == http.context.trace_id
    assert rpc.parent.span_id == http.context.span_id
    assert found["GET unmatched"].attributes["http.response.status_code"] == 404
