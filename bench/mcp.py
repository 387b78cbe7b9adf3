"""A call of an MCP tool through the vault proxy, beside a direct call with the same library."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from mcp import Client

from bench.bare_sandboxes import in_turn
from bench.report import Report
from bench.statistics import Distribution
from bench.vault_process import TOKEN, running_vault_proxy
from chassis.grpc.channel import open_channel
from chassis.secret import Secret
from drover.vault.v1 import credential_proxy_service_pb2 as pb
from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceStub
from tests.doubles.mcp_server import running_mcp_server
from tests.doubles.one_session import OneSession

_BATCH: Final = 5
_INPUT: Final = {"text": "x" * 200}
_PATHS: Final = {"2026-07-28": "/json/mcp", "2025-11-25": "/old"}

Call = Callable[[], Awaitable[object]]


async def measure(report: Report, *, scale: float) -> None:
    """Latency of one call after the other, in both generations of the protocol."""
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as name, running_mcp_server() as peer:
        async with AsyncExitStack() as stack:
            session = OneSession()  # type: ignore[abstract]
            for version, path in _PATHS.items():
                session.add_server(version, peer.url(path))
            proxy = await stack.enter_async_context(
                running_vault_proxy(Path(name), session, f"127.0.0.1/32:{peer.port}")
            )
            channel = await stack.enter_async_context(open_channel(proxy.address, Secret(TOKEN)))
            service = CredentialProxyServiceStub(channel)
            request = pb.OpenGrantRequest(session_id="sesn_1", hand_id="bench")
            grant = (await service.OpenGrant(request)).grant
            for version, path in _PATHS.items():
                client = await stack.enter_async_context(Client(peer.url(path), cache=None))
                await client.list_tools()
                call = pb.CallRequest(
                    grant=grant,
                    mcp_server_name=version,
                    tool="echo",
                    input=json.dumps(_INPUT),
                    call_id="sevt_bench",
                )
                ways = partial(service.Call, call), partial(client.call_tool, "echo", _INPUT)
                await _compare(report, version, ways, scale)


async def _compare(report: Report, version: str, calls: tuple[Call, Call], scale: float) -> None:
    ways = tuple(map(_batch, calls))
    await in_turn(3, *ways)
    taken = await in_turn(max(10, int(60 * scale)), *ways)
    ours, theirs = (
        Distribution(tuple(one for batch in batches for one in batch))  # type: ignore[attr-defined]
        for batches in taken
    )
    report.latency(f"MCP call through the vault proxy, {version}", ours)
    report.latency("  direct, with the same library", theirs)
    report.figure("  added by the vault proxy", ours.percentile(0.5) - theirs.percentile(0.5), "ms")


def _batch(call: Call) -> Callable[[], Awaitable[list[float]]]:
    async def run() -> list[float]:
        taken = []
        for _ in range(_BATCH):
            begin = time.perf_counter()
            await call()
            taken.append((time.perf_counter() - begin) * 1000)
        return taken

    return run
