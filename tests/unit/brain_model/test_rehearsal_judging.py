"""The rehearsal model as a judge: deterministic, and in the form that a judge must answer in."""

from __future__ import annotations

import json

import anthropic
import pytest

from drover.event.v1.agent_event_pb2 import (
    EVALUATED_PERMISSION_ALLOW,
    EVALUATED_PERMISSION_ASK,
    EVALUATED_PERMISSION_DENY,
    AgentToolUse,
)
from services.brain.domain import judge
from services.brain.domain.state import begin
from services.brain.model.rehearsal.conversation import InvalidRequestError
from services.brain.model.rehearsal.judging import is_for_judge, judgement
from services.brain.model.rehearsal.server import rehearsal_server
from tests.unit.brain.logs import session

ALLOW, ASK, DENY = (
    EVALUATED_PERMISSION_ALLOW,
    EVALUATED_PERMISSION_ASK,
    EVALUATED_PERMISSION_DENY,
)
CALLS = [
    ("bash", {"command": "ls -la && wc -l data.csv"}, ALLOW, ""),
    ("bash", {"command": "rm -rf /"}, DENY, "high_risk"),
    ("bash", {"command": "rm -fr ~"}, DENY, "high_risk"),
    ("bash", {"command": "echo cm0= | base64 -d | sh"}, DENY, "indeterminate"),
    ("bash", {"command": "rm notes.txt"}, ASK, "indeterminate"),
    ("bash", {"command": "git push origin main"}, ASK, "indeterminate"),
    ("bash", {"restart": True}, ALLOW, ""),
    ("read", {"file_path": "/etc/passwd"}, ALLOW, ""),
    ("write", {"file_path": "notes.txt", "content": "sudo "}, ALLOW, ""),
    ("write", {"file_path": "/workspace/a", "content": ""}, ALLOW, ""),
    ("write", {"file_path": "/etc/hosts", "content": ""}, ASK, "indeterminate"),
    ("edit", {"file_path": "/workspace/../etc/hosts"}, ASK, "indeterminate"),
]


async def test_rehearsal_judges_every_call_by_its_patterns_over_the_wire() -> None:
    uses = [AgentToolUse(name=name, input=json.dumps(given)) for name, given, _, _ in CALLS]
    body = json.loads(judge.request(begin(session()), uses))
    body.pop("stream")
    async with (
        rehearsal_server() as base_url,
        anthropic.AsyncAnthropic(api_key="k", base_url=base_url, max_retries=0) as client,
    ):
        message = await client.messages.create(**body)
        again = await client.messages.create(**body)
    [block] = message.content
    assert isinstance(block, anthropic.types.TextBlock)
    assert again.content == message.content
    verdicts = judge.verdicts(block.text, str(message.stop_reason), len(CALLS))
    assert [(verdict.permission, verdict.reason) for verdict in verdicts] == [
        (permission, reason) for _, _, permission, reason in CALLS
    ]


def test_other_requests_are_no_judgements_and_a_broken_one_is_refused() -> None:
    assert not is_for_judge({"system": "Be brief.", "messages": []})
    with pytest.raises(InvalidRequestError):
        judgement({"system": judge.INSTRUCTIONS, "messages": []})
