"""The vault proxy's real process, with a session service that knows one session."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.session.v1.session_service_pb2_grpc import add_SessionServiceServicer_to_server
from drover.vault.v1 import credential_proxy_service_pb2 as pb
from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceStub
from tests.doubles.one_session import OneSession
from tests.doubles.ports import free_port

TOKEN: Final = "a-token-for-the-bench"  # noqa: S105


class VaultProxy(NamedTuple):
    """Where it listens, and its process."""

    address: str
    pid: int


@asynccontextmanager
async def running_vault_proxy(
    folder: Path, session: OneSession, opened: str, **settings: str
) -> AsyncIterator[VaultProxy]:
    """Runs it. `opened` are private networks."""
    (folder / "token").write_text(TOKEN)
    sessions = GrpcServer("127.0.0.1:0", Secret(TOKEN), reflection=False)
    sessions.add(add_SessionServiceServicer_to_server, session)
    await sessions.start()
    address = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "services.vault_proxy.main"),
        env={
            **os.environ,
            "DROVER_DATA_DIR": str(folder),
            "DROVER_TOKEN_FILE": str(folder / "token"),
            "DROVER_LISTEN": address,
            "DROVER_SESSION_ADDRESS": sessions.address,
            "DROVER_EGRESS_ALLOW_PRIVATE": opened,
            "DROVER_LOG_LEVEL": "warning",
            **settings,
        },
    )
    try:
        async with open_channel(address, Secret(TOKEN)) as channel, asyncio.timeout(30):
            await CredentialProxyServiceStub(channel).GetHoldings(
                pb.GetHoldingsRequest(), wait_for_ready=True
            )
        yield VaultProxy(address, process.pid)
    finally:
        process.terminate()
        await process.wait()
        await sessions.stop()
