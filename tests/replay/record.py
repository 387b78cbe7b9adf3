"""Records golden logs of this tree: `python -m tests.replay.record [NAME...]`.

Once a release is out its logs are left alone; new ones go into the folder of the release that is
being made.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from cli.transfer.exporting import export_session
from cli.transfer.service import ServiceTarget
from tests.e2e.mcp_stack import McpStack, mcp_stack
from tests.e2e.stack import ROOT, Stack, running_stack
from tests.e2e.web_stack import WebStack, web_stack
from tests.replay import golden, scenarios
from tests.replay.golden import GoldenLog
from tests.replay.mcp_scenario import mcp_servers
from tests.replay.web_scenario import web_tools

MCP: Final = mcp_servers.__name__
WEB: Final = web_tools.__name__


def record(stack: Stack, scenario: scenarios.Scenario, path: Path) -> None:
    """Drives a scenario and exports its session into a file."""
    stack.model.reset()
    with stack.client() as client:
        session_id = scenario(stack, client)
    export_session(target(stack), session_id, path)


def record_mcp(mcp: McpStack, path: Path) -> None:
    """As `record`, for the session with MCP servers."""
    mcp.reset()
    with mcp.stack.client() as client:
        session_id = mcp_servers(mcp, client)
    export_session(target(mcp.stack), session_id, path)


def record_web(web: WebStack, path: Path) -> None:
    """As `record`, for the session with the web tools."""
    web.reset()
    with web.stack.client() as client:
        session_id = web_tools(web, client)
    export_session(target(web.stack), session_id, path)


def target(stack: Stack) -> ServiceTarget:
    """The session service of a stack."""
    peers = stack.peers("operator")
    return ServiceTarget(stack.address("session"), peers.token, tls=peers.tls)


def main() -> None:
    """Records the scenarios that are named, or all."""
    known = {scenario.__name__: scenario for scenario in scenarios.ALL}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--release", default=release())
    arguments = parser.parse_args()
    folder = golden.LOGS / arguments.release
    folder.mkdir(parents=True, exist_ok=True)
    wanted = arguments.names or [*known, MCP, WEB]
    with tempfile.TemporaryDirectory() as data:
        if others := [name for name in wanted if name not in {MCP, WEB}]:
            with running_stack(Path(data) / "plain", **scenarios.ENVIRONMENT) as stack:
                for name in others:
                    record(stack, known[name], folder / f"{name}.jsonl")
        if MCP in wanted:
            with mcp_stack(Path(data) / "mcp", **scenarios.ENVIRONMENT) as mcp:
                record_mcp(mcp, folder / f"{MCP}.jsonl")
        if WEB in wanted:
            with web_stack(Path(data) / "web", **scenarios.ENVIRONMENT) as web:
                record_web(web, folder / f"{WEB}.jsonl")
    for name in wanted:
        path = folder / f"{name}.jsonl"
        path.chmod(0o644)
        log = GoldenLog.read(path)
        golden.write_lines(golden.decisions_file(path), list(log.decisions()))
        print(f"{path}: {len(log.events)} events")  # noqa: T201


def release() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


if __name__ == "__main__":
    main()
