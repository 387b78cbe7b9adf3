"""What `drover doctor --url` makes of what an installation answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from cli.doctor import remote
from cli.doctor.finding import Finding, Verdict

NOW = datetime.now(UTC)


def process(name: str, **fields: Any) -> dict[str, Any]:
    told = {"service": name, "name": name, "address": "10.0.0.1:1", "host": "a", "version": "1.0"}
    return {**told, "state": "SERVING", "clock_ahead_seconds": 0.0, **fields}


def status(*processes: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    told = {
        "type": "status",
        "version": "1.0",
        "now": datetime.now(UTC).isoformat(),
        "key": {"id": "apikey_1"},
    }
    return {**told, "processes": list(processes), **fields}


def examined(answer: dict[str, Any] | int, version: str = "1.0") -> dict[str, Finding]:
    """The findings, by their subjects."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/healthz":
            return httpx2.Response(200, json={"status": "ok"})
        if request.url.path == "/status":
            if isinstance(answer, int):
                return httpx2.Response(answer, json={"error": {"message": "no"}})
            return httpx2.Response(200, json=answer)
        if request.url.path == "/status/stream":
            return httpx2.Response(200, text="data: 1\n\n" * 4)
        return httpx2.Response(200, json={})

    transport = httpx2.MockTransport(handle)
    with httpx2.Client(base_url="http://drover.example", transport=transport) as http:
        found = list(remote._examined(http, "http://drover.example", "key", version))
    return {one.subject: one for one in found}


def test_events_that_come_all_at_once_were_held_up() -> None:
    found = examined(status())["event streams"]
    assert found.verdict is Verdict.MISSING
    assert "buffer" in found.remedy


def test_no_encryption_off_this_machine_is_told() -> None:
    assert "in clear" in examined(status())["TLS"].detail


def test_another_release_is_told_and_an_upgrade_under_way_too() -> None:
    assert examined(status(process("session")))["release"].verdict is Verdict.FINE
    assert "this command is of 2.0" in examined(status(), version="2.0")["release"].detail
    mixed = examined(status(process("session", version="0.9"), process("hands", version=None)))
    assert "several run: 0.9, 1.0" in mixed["release"].detail


def test_something_else_that_answers_for_the_status_is_told() -> None:
    for other in ({}, {"type": "page"}):
        found = examined(other)["status"]
        assert found.verdict is Verdict.MISSING
        assert "pass on /status" in found.remedy


def test_an_address_that_leads_elsewhere_is_told_with_where() -> None:
    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(308, headers={"location": "https://drover.example/healthz"})

    transport = httpx2.MockTransport(handle)
    with httpx2.Client(base_url="http://drover.example", transport=transport) as http:
        (found,) = remote._examined(http, "http://drover.example", "key", "1.0")
    assert found.verdict is Verdict.MISSING
    assert "it leads to https://drover.example/healthz" in found.remedy


def test_a_clock_that_is_wrong_is_named() -> None:
    assert examined(status(process("session")))["clocks"].verdict is Verdict.FINE
    behind = examined(status(process("session", clock_ahead_seconds=-90.2)))["clocks"]
    assert behind.detail == "session at 10.0.0.1:1 is 90 s behind"
    late = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    assert "the gateway is 300 s ahead" in examined(status(now=late))["clocks"].detail


def test_a_key_is_told_with_what_it_opens_and_until_when() -> None:
    key = {"id": "apikey_1", "workspace_id": "wrkspc_a", "scopes": ["read", "sessions:write"]}
    told = examined(status(key=key))["key"]
    assert told.detail == "apikey_1 opens wrkspc_a with read, sessions:write"
    soon = (NOW + timedelta(days=3)).isoformat()
    ending = examined(status(key={**key, "expires_at": soon}))["key"]
    assert ending.verdict is Verdict.OPTIONAL
    assert ending.detail.endswith(f"until {soon}")


def test_a_replica_that_does_not_serve_is_named_with_the_likely_cause() -> None:
    found = examined(status(process("session"), process("session", state="NOT_SERVING")))
    assert "its database does not answer" in found["processes"].detail


def test_a_key_that_may_not_see_processes_and_an_older_gateway_are_no_failure() -> None:
    for answer in (status(processes=None), 404):
        assert examined(answer)["key" if isinstance(answer, dict) else "release"].verdict in {
            Verdict.FINE,
            Verdict.OPTIONAL,
        }
