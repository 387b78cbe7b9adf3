"""Texts that not every database takes: refused alike on each, by the name of their field."""

from __future__ import annotations

import re

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from chassis import rules
from chassis.errors import Reason
from drover.api.v1 import annotations_pb2
from drover.session.v1 import session_service_pb2
from services.session.store import schema
from storage.migrate import migrate
from tests.doubles.session_events import idle, message, running
from tests.doubles.session_stack import AGENT_ID, ENVIRONMENT_ID, refusal, running_service
from tests.integration.session.test_streams import following, take

SERVICE = session_service_pb2.DESCRIPTOR.services_by_name["SessionService"]
FIELDS = [
    (method, field)
    for method in SERVICE.methods
    if not method.client_streaming
    for field in method.input_type.fields
    if field.type == FieldDescriptor.TYPE_STRING
]
NO_IDS = "a\0b", "a\nid: b", "a b", " ", "é", "\U0001f600", "\x7f"


@pytest.fixture(params=["sqlite", "postgresql"])
async def either(request, tmp_path):
    """A service on each of the databases."""
    settings = {}
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
        await migrate(url, schema.SCHEMA)
        settings["database_url"] = url
    async with running_service(tmp_path, **settings) as service:
        yield service


async def called(service, method, field):
    """What a method answers first that is sent the character zero in one of its fields."""
    request, session = GetMessageClass(method.input_type)(), await service.create()
    known = {"session_id": session.id, "thread_id": session.primary_thread_id}
    for name in known.keys() & {
        one.name for one in method.input_type.fields if not one.has_presence
    }:
        setattr(request, name, known[name])
    if method.name == "CreateSession":
        request.agent.agent.id, request.environment_id = AGENT_ID, ENVIRONMENT_ID
    if field.is_repeated:
        getattr(request, field.name).append("a\0b")
    else:
        setattr(request, field.name, "a\0b")
    call = getattr(service.stub, method.name)(request)
    return await (call.read() if method.server_streaming else call)


async def test_the_character_zero_is_refused_by_the_name_of_its_field(either):
    assert len(FIELDS) > 20
    for method, field in FIELDS:
        error = await refusal(called(either, method, field))
        name = field.GetOptions().Extensions[annotations_pb2.json].query or field.name
        assert error.reason is Reason.INVALID_ARGUMENT, (method.name, field.name)
        assert re.match(rf"{name}(\.0)?: ", error.message), (method.name, error.message)


async def test_event_id_is_one_that_headers_can_carry(either):
    session = await either.create()
    for event_id in NO_IDS:
        error = await refusal(either.emit(session.id, message(event_id=event_id)))
        assert error.reason is Reason.INVALID_ARGUMENT
        assert error.message.startswith("events.0.id: ")
    assert not (await either.events(session.id)).data


async def test_log_with_an_id_that_no_header_carries_can_be_followed(service, monkeypatch):
    session = await service.create(message("hi"))
    lease = await service.lease(session.id).open()
    with monkeypatch.context() as older:
        older.setattr(rules, "check", lambda _message: None)  # a release took any id
        last = idle()
        last.id = "é\n"
        await lease.append(running(), last, take=2)
    stream = await following(service, session.id)
    [sent] = await service.emit(session.id, message("more"))
    assert [frame.event for frame in await take(stream, 1)] == [sent]
