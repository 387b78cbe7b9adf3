"""The rehearsal model as the judge of the policy `auto`: a few patterns, so that it can be tried.

It understands no more than what these patterns match. What they do not know they let through,
which is good for a rehearsal in a sandbox without a network and for nothing else.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from services.brain.domain.judge import HIGH_RISK, INSTRUCTIONS
from services.brain.domain.policy import INDETERMINATE
from services.brain.model.rehearsal.conversation import InvalidRequestError
from services.brain.model.rehearsal.script import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

_DESTROYS: Final = re.compile(
    r"\brm\s+(?:-\w+\s+)*-\w*[rR]\w*\s+(?:-\w+\s+)*(?:/|~|\$HOME)(?:\s|\*|$)"
    r"|\bmkfs|\bdd\b[^\n]*\bof=/dev/|\b(?:shutdown|reboot|halt)\b|:\(\)\s*\{"
)
_OBSCURES: Final = re.compile(r"\bbase64\s+(?:-d|--decode)[^\n]*\|\s*(?:ba|z)?sh\b|\beval\b")
_LASTS: Final = re.compile(
    r"\b(?:sudo|curl|wget|ssh|scp|rm|kill|pkill)\s|\bgit\s+push\b|\b(?:pip|npm|apt)\S*\s+install\b"
)
_OWN: Final = re.compile(r"(?:/workspace|/mnt/session/outputs|/tmp)(?:/|$)")  # the sandbox's


def is_for_judge(body: Mapping[str, Any]) -> bool:
    """Whether a request asks for a judgement."""
    return bool(body.get("system") == INSTRUCTIONS)


def judgement(body: Mapping[str, Any]) -> Answer:
    """The answer to such a request. Raises InvalidRequestError for one in another shape."""
    try:
        calls = json.loads(body["messages"][0]["content"][0]["text"])["calls"]
        verdicts = [
            {"call": call["call"], **_verdict(call["tool"], json.loads(call["input"]))}
            for call in calls
        ]
    except (ValueError, TypeError, LookupError) as error:
        raise InvalidRequestError("messages: hold no calls to judge") from error
    return Answer(json.dumps({"verdicts": verdicts}))


def _verdict(tool: str, given: Mapping[str, Any]) -> dict[str, str]:
    if tool in {"write", "edit"}:
        path = str(given.get("file_path", ""))
        outside = ".." in path or (path.startswith("/") and not _OWN.match(path))
        return {"verdict": "ask" if outside else "allow"}
    command = str(given.get("command", "")) if tool == "bash" else ""
    if _DESTROYS.search(command):
        return {"verdict": "deny", "reason": HIGH_RISK}
    if _OBSCURES.search(command):
        return {"verdict": "deny", "reason": INDETERMINATE}
    return {"verdict": "ask" if _LASTS.search(command) else "allow"}
