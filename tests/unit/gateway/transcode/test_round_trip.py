"""What is written can be read back, for every message and all that HTTP shows of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drover.agent.v1 import agent_pb2, agent_service_pb2
from drover.environment.v1 import environment_pb2, environment_service_pb2
from drover.event.v1 import event_pb2
from drover.session.v1 import preview_pb2, session_pb2, session_service_pb2
from gateway.transcode import document
from gateway.transcode.decode import Decoders
from gateway.transcode.encode import Encoders
from tests.unit.gateway.transcode.messages import OpenShapes, messages

SHAPES = OpenShapes()
ENCODERS, DECODERS = Encoders(SHAPES), Decoders(SHAPES)
TYPES = [
    event_pb2.Event,
    preview_pb2.Preview,
    session_pb2.Session,
    session_pb2.Thread,
    agent_pb2.Agent,
    environment_pb2.Environment,
    agent_service_pb2.CreateAgentRequest,
    agent_service_pb2.UpdateAgentRequest,
    environment_service_pb2.UpdateEnvironmentRequest,
    session_service_pb2.CreateSessionRequest,
    session_service_pb2.EmitEventsRequest,
    session_service_pb2.ListSessionsResponse,
]


@pytest.mark.parametrize("message_type", TYPES, ids=lambda one: one.DESCRIPTOR.name)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_reading_what_was_written_gives_the_message_back(message_type: Any, data: Any) -> None:
    message = data.draw(messages(message_type.DESCRIPTOR, SHAPES))

    text = ENCODERS.of(message_type.DESCRIPTOR).encode(message)
    back = message_type()
    decoder = DECODERS.of(message_type.DESCRIPTOR)
    value = document.parse(text)
    decoder.fill(back, document.whole(text) if decoder.exact else value)

    assert back == message
