"""The internal services are for everybody: a generated client, and grpcurl by reflection."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format

from drover.brain.v1 import brain_service_pb2, brain_service_pb2_grpc
from drover.event.v1 import content_pb2, event_pb2, user_event_pb2
from drover.hands.v1 import hands_service_pb2, hands_service_pb2_grpc
from drover.session.v1 import session_service_pb2, session_service_pb2_grpc
from identity.names import name_of
from tests.doubles.messages_api import text
from tests.e2e.driving import history, new_session, run_turn, texts
from tests.e2e.stack import Stack


def message(words: str) -> event_pb2.Event:
    """A user message as an event."""
    block = content_pb2.ContentBlock(text=content_pb2.TextBlock(text=words))
    return event_pb2.Event(user_message=user_event_pb2.UserMessage(content=[block]))


def channel(stack: Stack, service: str) -> grpc.Channel:
    """A channel to a service, of who calls it."""
    return stack.channel(service, caller_of(service))


def caller_of(service: str) -> str:
    """Who may call what is called of a service here."""
    return {"hands": "brain", "brain-1": "session", "brain-2": "session"}.get(service, "operator")


def identity(stack: Stack) -> tuple[tuple[str, str], ...]:
    """The installation's secret, as every internal call carries it."""
    return (("authorization", f"Bearer {stack.token}"),)


def test_generated_client_runs_the_verbs(stack: Stack) -> None:
    stack.model.script(text("by grpc"))
    known = identity(stack)
    with stack.client() as client:
        session = new_session(client)
        with channel(stack, "session") as to_session, channel(stack, "brain-1") as to_brain:
            sessions = session_service_pb2_grpc.SessionServiceStub(to_session)
            sent = sessions.EmitEvents(
                session_service_pb2.EmitEventsRequest(
                    session_id=session.id, events=[message("hi")]
                ),
                metadata=known,
            )
            assert sent.data[0].id.startswith("sevt_")
            stack.until_idle(client, session.id)
            got = sessions.GetEvents(
                session_service_pb2.GetEventsRequest(
                    session_id=session.id, types=["agent.message"]
                ),
                metadata=known,
            )
            assert [event.agent_message.content[0].text.text for event in got.data] == ["by grpc"]
            # Nothing is left to do: the brain looks, and says so.
            brain_service_pb2_grpc.BrainServiceStub(to_brain).Wake(
                brain_service_pb2.WakeRequest(session_id=session.id), metadata=known, timeout=60
            )
    with channel(stack, "hands") as to_hands:
        hands = hands_service_pb2_grpc.HandsServiceStub(to_hands)
        hand = hands.Provision(
            hands_service_pb2.ProvisionRequest(session_id="generated"), metadata=known
        )
        assert hand.hand_id
        call = hands_service_pb2.ExecuteRequest(
            session_id="generated",
            call_id="call_1",
            name="bash",
            input='{"command": "echo $RANDOM$RANDOM"}',
        )
        first = hands.Execute(call, metadata=known)
        again = hands.Execute(call, metadata=known)
        assert first.content[0].text.text == again.content[0].text.text
        assert (first.replayed, again.replayed) == (False, True)


def test_client_may_not_emit_what_only_a_brain_says(stack: Stack) -> None:
    with stack.client() as client:
        session = new_session(client)
        with channel(stack, "session") as to_session:
            forged = event_pb2.Event()
            forged.agent_message.content.add().text.text = "I am the model"
            with pytest.raises(grpc.RpcError) as refused:
                session_service_pb2_grpc.SessionServiceStub(to_session).EmitEvents(
                    session_service_pb2.EmitEventsRequest(session_id=session.id, events=[forged]),
                    metadata=identity(stack),
                )
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "events.0" in refused.value.details()
        assert history(client, session.id) == []


@pytest.mark.parametrize("service", ["session", "registry", "hands", "vault_proxy", "brain-1"])
def test_no_internal_call_without_the_installations_secret(stack: Stack, service: str) -> None:
    with channel(stack, service) as opened:
        for metadata in ((), (("authorization", "Bearer wrong"),)):
            call = opened.unary_unary("/drover.any.v1.AnyService/Anything")
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", metadata=metadata, timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def grpcurl(stack: Stack, service: str, *arguments: str, **more: Any) -> str:
    """Runs the real grpcurl against a service."""
    command = command_of(stack, service, *arguments, **more)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def command_of(
    stack: Stack,
    service: str,
    *arguments: str,
    body: Any = None,
    caller: str = "operator",
) -> list[str | Path]:
    """The command line of grpcurl."""
    binary = shutil.which("grpcurl", path=str(Path(sys.executable).parent)) or "grpcurl"
    data = [] if body is None else ["-d", json.dumps(body)]
    shown = stack.data / "run" / "tls" / caller
    return [
        binary, "-cacert", shown / "ca.crt", "-cert", shown / "tls.crt", "-key", shown / "tls.key",
        "-authority", name_of(service.partition("-")[0]),
        "-H", f"authorization: Bearer {stack.token}",
        *data, stack.address(service), *arguments,
    ]  # fmt: skip


def test_grpcurl_runs_the_verbs_by_reflection(stack: Stack) -> None:
    stack.model.script(text("by grpcurl"))
    with stack.client() as client:
        session = new_session(client)
        assert "drover.session.v1.SessionService" in grpcurl(stack, "session", "list")
        described = grpcurl(stack, "hands", "describe", "drover.hands.v1.HandsService")
        assert "Idempotent by (session_id" in described or "rpc Execute" in described
        event = json_format.MessageToDict(message("hi"))
        grpcurl(
            stack, "session", "drover.session.v1.SessionService/EmitEvents",
            body={"sessionId": session.id, "events": [event]},
        )  # fmt: skip
        stack.until_idle(client, session.id)
        got = grpcurl(
            stack, "session", "drover.session.v1.SessionService/GetEvents",
            body={"session_id": session.id},
        )  # fmt: skip
        assert "by grpcurl" in got
        grpcurl(
            stack, "brain-2", "drover.brain.v1.BrainService/Wake", body={"session_id": session.id},
            caller="session",
        )  # fmt: skip
    grpcurl(
        stack, "hands", "drover.hands.v1.HandsService/Provision", body={"session_id": "grpcurl"},
        caller="brain",
    )  # fmt: skip
    ran = grpcurl(
        stack, "hands", "drover.hands.v1.HandsService/Execute", caller="brain",
        body={
            "session_id": "grpcurl",
            "call_id": "call_1",
            "name": "bash",
            "input": '{"command":"echo $((6*7))"}',
        },
    )  # fmt: skip
    assert "42" in ran
    follow = command_of(
        stack, "hands", "drover.hands.v1.HandsService/Follow", caller="brain",
        body={
            "call": {
                "session_id": "grpcurl",
                "call_id": "call_2",
                "name": "bash",
                "input": '{"command":"echo a; until [ -e go ]; do sleep 0.02; done; echo b"}',
            }
        },
    )  # fmt: skip
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        followed = ""
        while '"text": "a\\n"' not in followed and (line := process.stdout.readline()):
            followed += line
        (stack.workspace("grpcurl") / "go").touch()
        followed += process.stdout.read()
    assert '"text": "a\\n"' in followed
    assert followed.index('"output"') < followed.index('"result"')


def test_wake_by_hand_processes_what_waits(stack: Stack) -> None:
    stack.model.script(text("one"), text("two"))
    with stack.client() as client:
        session = new_session(client)
        run_turn(client, session.id, "first")
        with channel(stack, "brain-1") as to_brain:
            brain_service_pb2_grpc.BrainServiceStub(to_brain).Wake(
                brain_service_pb2.WakeRequest(session_id=session.id),
                metadata=identity(stack),
                timeout=60,
            )
        run_turn(client, session.id, "second")
        assert texts(history(client, session.id), "agent.message") == ["one", "two"]
