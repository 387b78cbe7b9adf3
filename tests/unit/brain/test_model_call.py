"""One model request: previews on its way, and what an interrupt leaves of it."""

from __future__ import annotations

import asyncio

import pytest

from catalogue.models import load
from drover.session.v1.preview_pb2 import Preview
from services.brain.clients.files import NoFiles
from services.brain.domain import events
from services.brain.harness.port import ModelRequest
from services.brain.loop.model_call import ModelCall
from services.brain.loop.sync_points import NoSyncPoints
from tests.doubles.scripted_model import Reply, ScriptedModel, response, text, tool
from tests.unit.brain import logs

REQUEST = ModelRequest("claude-test", b"{}")


class Rig:
    def __init__(self) -> None:
        self.model = ScriptedModel()
        self.previews: list[Preview] = []
        self.provisions = 0
        self.state = logs.HARNESS.begin(logs.session(*logs.every_kind_of_tool()))
        self.call = ModelCall(
            self.model,
            events.EventFactory(logs.Numbered(), "sthr_1", "Worker"),
            self.state,
            request="sevt_request",
            models=load(None),
            files=NoFiles(),
            preview=self.previews.append,
            on_sandbox=self.provision,
            points=NoSyncPoints(),
        )

    def provision(self) -> None:
        self.provisions += 1


async def test_interrupt_before_the_request_keeps_it_from_being_made() -> None:
    rig = Rig()
    rig.call.interrupt()
    assert await rig.call.perform(REQUEST) is None
    assert rig.model.bodies == []


async def test_interrupt_in_the_stream_ends_it_and_keeps_the_usage() -> None:
    rig = Rig()
    reply = rig.model.add(Reply(response(text("Once upon")), hold=2))
    performing = asyncio.create_task(rig.call.perform(REQUEST))
    await reply.reached.wait()
    rig.call.interrupt()
    rig.call.interrupt()
    assert await performing is None
    assert rig.call.usage().input_tokens == 10


async def test_cancelled_brain_is_no_interrupt() -> None:
    rig = Rig()
    reply = rig.model.add(Reply(response(text("Once upon")), hold=2))
    performing = asyncio.create_task(rig.call.perform(REQUEST))
    await reply.reached.wait()
    rig.call.interrupt()
    performing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await performing
    assert rig.model.cut_off == 1


@pytest.mark.parametrize(
    ("name", "provisions"),
    [("bash", 1), ("write", 0), ("edit", 0), ("ask_user", 0), ("nonsense", 0)],
)
async def test_sandbox_is_wanted_as_soon_as_a_call_that_will_run_begins(
    name: str, provisions: int
) -> None:
    rig = Rig()
    reply = rig.model.add(Reply(response(tool(name, {})), hold=2))
    performing = asyncio.create_task(rig.call.perform(REQUEST))
    await reply.reached.wait()
    assert rig.provisions == provisions
    reply.release.set()
    await performing
