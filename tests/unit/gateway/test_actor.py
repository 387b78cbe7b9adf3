"""Who acts is said of every request that has a place for it, and of no other."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.api.v1.annotations_pb2 import KEY_KIND_ENVIRONMENT, KEY_KIND_WORK_ITEM
from drover.memory.v1.memory_pb2 import Actor
from drover.memory.v1.memory_service_pb2 import CreateMemoryRequest, GetMemoryRequest
from gateway.actor import signer
from gateway.auth import Caller
from gateway.services import SERVED

API = Caller("wrkspc_1", b"", key_id="apikey_1")
WORKER = Caller("wrkspc_1", b"", KEY_KIND_WORK_ITEM, "env_1", "sesn_1", "work_1")


@pytest.mark.parametrize(
    ("caller", "actor"),
    [
        (API, Actor(api_actor={"api_key_id": "apikey_1"})),
        (WORKER, Actor(session_actor={"session_id": "sesn_1"})),
    ],
)
def test_a_request_is_signed_with_its_caller(caller: Caller, actor: Actor) -> None:
    sign = signer(CreateMemoryRequest.DESCRIPTOR)
    assert sign is not None
    message = CreateMemoryRequest(actor={"session_actor": {"session_id": "forged"}})
    sign(message, caller)
    assert message.actor == actor


def test_an_environment_key_acts_for_nobody() -> None:
    sign = signer(CreateMemoryRequest.DESCRIPTOR)
    assert sign is not None
    with pytest.raises(DroverError) as refused:
        sign(CreateMemoryRequest(), Caller("wrkspc_1", b"", KEY_KIND_ENVIRONMENT, "env_1"))
    assert refused.value.reason is Reason.PERMISSION_DENIED


def test_only_requests_with_a_place_for_it_are_signed() -> None:
    assert signer(GetMemoryRequest.DESCRIPTOR) is None
    signed = {
        method.name
        for service in SERVED
        for method in service.methods
        if signer(method.input_type) is not None
    }
    assert signed == {"CreateMemory", "UpdateMemory", "DeleteMemory", "RedactMemoryVersion"}
