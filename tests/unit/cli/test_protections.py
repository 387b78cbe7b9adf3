from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from cli.doctor import protections
from cli.doctor.finding import Verdict

ROWS = [
    {"name": "namespaces", "lacking": "", "wanted": True},
    {"name": "memory-limit", "lacking": "no group can be made: run it as root", "wanted": True},
    {"name": "own-kernel", "lacking": "use runsc", "wanted": False},
]


def examined(
    monkeypatch: pytest.MonkeyPatch, out: str = "", error: str = "", code: int = 0
) -> list[Sequence[str]]:
    asked: list[Sequence[str]] = []

    def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        asked.append(arguments)
        return subprocess.CompletedProcess(arguments, code, out, error)

    monkeypatch.setattr(protections, "_run", run)
    return asked


def test_each_protection_is_a_row_and_what_the_minimum_lacks_keeps_drover_from_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = examined(monkeypatch, json.dumps(ROWS))
    holds, limit, kernel = protections.protections({protections.MINIMUM: "limited"})
    assert asked == [["limited", "local"]]
    assert (holds.subject, holds.verdict) == ("local: namespaces", Verdict.FINE)
    assert (limit.verdict, limit.remedy) == (Verdict.MISSING, "run it as root")
    assert "no group can be made, and DROVER_SANDBOX_MINIMUM asks for it" in limit.detail
    assert (kernel.verdict, kernel.remedy) == (Verdict.OPTIONAL, "use runsc")


def test_engine_is_asked_where_containers_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = examined(monkeypatch, "[]")
    environ = {
        "DROVER_SANDBOX": "docker",
        "DOCKER_HOST": "unix:///x",
        "DROVER_SANDBOX_RUNTIME": "g",
    }
    assert protections.protections(environ) == []
    assert asked == [["isolated", "docker", "unix:///x", "g"]]


@pytest.mark.parametrize(
    "answer", [{"error": "warning\nno level: nowhere\n", "code": 1}, {"out": "no JSON"}, {}]
)
def test_trial_that_cannot_be_made_is_told_and_is_no_reason_not_to_run(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    examined(monkeypatch, **answer)
    (finding,) = protections.protections({})
    assert finding.verdict is Verdict.OPTIONAL
    assert "no trial could be made" in finding.detail


def test_trial_of_this_machine_tells_every_protection() -> None:
    findings = protections.protections({protections.MINIMUM: "namespaces"})
    told = {finding.subject: finding.verdict for finding in findings}
    assert told["local: namespaces"] is Verdict.FINE
    assert told["local: own-kernel"] is Verdict.OPTIONAL
    assert len(told) == 12
