"""Records golden logs of this tree: `python -m tests.replay.record [NAME...]`.

Once a release is out its logs are left alone; new ones go into the folder of the release that is
being made.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
from pathlib import Path

import grpc

from drover.event.v1.event_pb2 import Event
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from tests.e2e.stack import ROOT, Stack, running_stack
from tests.replay import golden, scenarios
from tests.replay.golden import GoldenLog


def record(stack: Stack, scenario: scenarios.Scenario) -> GoldenLog:
    """Drives a scenario; answers the session as it began and its log, as brains are sent them."""
    stack.model.reset()
    with stack.client() as client, grpc.insecure_channel(stack.address("session")) as channel:
        sessions = SessionServiceStub(channel)
        identity = (("authorization", f"Bearer {stack.token}"),)
        steps = scenario(stack, client)
        named = pb.GetSessionRequest(session_id=next(steps))
        session = sessions.GetSession(named, metadata=identity).session
        assert next(steps, None) is None
        events: list[Event] = []
        while True:
            beyond = pb.GetEventsRequest(session_id=session.id, after_seq=len(events))
            page = sessions.GetEvents(beyond, metadata=identity)
            if not page.data:
                return GoldenLog(session, events)
            events += page.data


def main() -> None:
    """Records the scenarios that are named, or all."""
    known = {scenario.__name__: scenario for scenario in scenarios.ALL}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--release", default=release())
    arguments = parser.parse_args()
    folder = golden.LOGS / arguments.release
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        running_stack(Path(data), **scenarios.ENVIRONMENT) as stack,
    ):
        for name in arguments.names or known:
            log = record(stack, known[name])
            path = folder / f"{name}.jsonl"
            log.write(path)
            golden.write_lines(golden.decisions_file(path), list(log.decisions()))
            print(f"{path}: {len(log.events)} events")  # noqa: T201


def release() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


if __name__ == "__main__":
    main()
