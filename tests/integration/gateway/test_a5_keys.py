"""CASES A5: keys that are guessed, have ended, or open something else."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.doubles import platform_workers as workers
from tests.integration.gateway.conftest import KEY, Gateway

GUESSES = 5
STORED, LATER = "drover_api_stored", "drover_api_later"


@pytest.fixture
def gateway_settings() -> dict[str, Any]:
    return {"failed_keys_per_minute": GUESSES}


async def ask(
    gateway: Gateway, key: str, path: str = "/v1/agents", **headers: str
) -> tuple[int, str]:
    """The status of a request, and the type of the error."""
    answer = await gateway.http.get(path, headers={"x-api-key": key, **headers})
    if answer.status_code == 429:
        assert 0 < int(answer.headers["retry-after"]) <= 60 / GUESSES
    return answer.status_code, (answer.json() or {}).get("error", {}).get("type", "")


async def exhaust(gateway: Gateway, kind: str = "drover_api_") -> None:
    for number in range(GUESSES):
        assert await ask(gateway, f"{kind}{number}") == (401, "authentication_error")


@pytest.mark.parametrize("kind", ["drover_api_", "drover_env_", "drover_work_", "sk-"])
async def test_who_guesses_keys_is_told_to_wait_and_nobody_is_asked(
    gateway: Gateway, kind: str
) -> None:
    await exhaust(gateway, kind)
    platform = gateway.platform
    asked = [platform.api_keys.asked, len(platform.works.requests)]
    for other in ("drover_api_", "drover_env_", "drover_work_", "sk-"):
        assert await ask(gateway, f"{other}x") == (429, "rate_limit_error")
    assert [platform.api_keys.asked, len(platform.works.requests)] == asked
    assert len(platform.environment_keys.requests) == (GUESSES if kind == "drover_env_" else 0)


async def test_many_guesses_at_once_are_no_more_than_one_after_the_other(gateway: Gateway) -> None:
    guesses = [ask(gateway, f"drover_api_{number}") for number in range(10 * GUESSES)]
    statuses = [status for status, _ in await asyncio.gather(*guesses)]
    assert statuses.count(401) <= GUESSES + 1  # one may have come since
    assert statuses.count(401) + statuses.count(429) == len(statuses)
    assert gateway.platform.api_keys.asked <= GUESSES + 1


async def test_a_key_that_is_right_is_let_in_by_however_many_requests_it_begins(
    gateway: Gateway,
) -> None:
    gateway.platform.api_keys.add(STORED, "read")
    answers = await asyncio.gather(*(ask(gateway, STORED) for _ in range(10 * GUESSES)))
    assert {status for status, _ in answers} == {200}


async def test_known_keys_go_on_from_where_others_are_guessed(gateway: Gateway) -> None:
    gateway.platform.api_keys.add(STORED, "read")
    work = "/v1/environments/env_1/work/poll"
    known = ((KEY, "/v1/agents"), (STORED, "/v1/agents"), (workers.ENVIRONMENT_KEY, work))
    for key, path in known:
        assert (await ask(gateway, key, path))[0] == 200
    await exhaust(gateway)
    for key, path in known:
        assert (await ask(gateway, key, path))[0] == 200
    gateway.platform.api_keys.add(LATER, "read")
    assert (await ask(gateway, LATER))[0] == 429


async def test_a_guess_is_not_hidden_by_what_it_says_of_where_it_comes_from(
    gateway: Gateway,
) -> None:
    for number in range(GUESSES):
        spoofed = {
            "x-forwarded-for": f"10.0.0.{number}",
            "x-real-ip": f"10.0.0.{number}",
            "forwarded": f"for=10.0.0.{number}",
        }
        assert (await ask(gateway, f"drover_api_{number}", **spoofed))[0] == 401
    assert (await ask(gateway, "drover_api_x", **{"x-forwarded-for": "10.9.9.9"}))[0] == 429


async def test_requests_without_any_key_are_no_guesses(gateway: Gateway) -> None:
    for _ in range(GUESSES + 1):
        assert (await ask(gateway, ""))[0] == 401


async def test_a_key_that_has_ended_is_told_so_however_often_it_is_shown(gateway: Gateway) -> None:
    keys = gateway.platform.api_keys
    keys.add(STORED, "admin", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    keys.add(LATER, "admin")
    keys.revoke(LATER)
    for _ in range(GUESSES + 1):
        for key, told in ((STORED, "has expired: ask for another"), (LATER, "was revoked")):
            answer = await gateway.http.get("/v1/agents", headers={"x-api-key": key})
            assert answer.status_code == 401
            assert told in answer.json()["error"]["message"]
            assert key not in answer.text
    assert keys.asked == 2


async def test_a_key_of_a_wrong_scope_or_kind_is_forbidden_what_it_does_not_open(
    gateway: Gateway,
) -> None:
    gateway.platform.api_keys.add(STORED, "sessions:read")
    for key in (STORED, workers.ENVIRONMENT_KEY, workers.WORK_TOKEN):
        for path in ("/v1/agents", "/v1/api_keys", "/v1/environments/env_1/keys"):
            assert await ask(gateway, key, path) == (403, "permission_error")
