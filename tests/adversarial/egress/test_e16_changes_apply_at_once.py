"""E16: what changes applies to the next request, within a second, on connections that live on."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1.session_pb2 import SESSION_STATUS_TERMINATED
from services.vault_proxy.domain.refusal import RefusedError, Why
from services.vault_proxy.grants.known import FRESH_SECONDS, STALE_SECONDS
from tests.doubles.egress import CANARY, credential, placeholder_of, session, target
from tests.doubles.grants import GrantWorld

_AWAY = DroverError(Reason.UNAVAILABLE, "nobody answers")
_HOST = "https://api.example.com/"


async def _why(world: GrantWorld, grant: str) -> Why:
    with pytest.raises(RefusedError) as raised:
        await world.granted.of_grant(grant)
    return raised.value.refusal.reason


async def test_another_networking_applies_within_a_second() -> None:
    world = GrantWorld()
    grant = await world.give()
    assert (await world.granted.of_grant(grant)).decide(target(_HOST)).allowed
    world.sessions["sesn_1"] = session(allowed=["other.example"])
    world.clock.passed += FRESH_SECONDS
    policy = await world.granted.of_grant(grant)
    assert not policy.decide(target(_HOST)).allowed
    assert policy.decide(target("https://other.example/")).allowed


async def test_a_session_that_is_asked_for_often_is_looked_up_seldom() -> None:
    world = GrantWorld()
    grant = await world.give()
    asked = world.asked
    for _ in range(100):
        await world.granted.of_grant(grant)
    assert world.asked == asked


@pytest.mark.parametrize("end", ["deleted", "archived", "terminated"])
async def test_a_session_that_has_ended_lets_nothing_out_within_a_second(end: str) -> None:
    world = GrantWorld()
    grant = await world.give()
    if end == "deleted":
        del world.sessions["sesn_1"]
    elif end == "archived":
        world.sessions["sesn_1"].archived_at.GetCurrentTime()
    else:
        world.sessions["sesn_1"].status = SESSION_STATUS_TERMINATED
    world.clock.passed += FRESH_SECONDS
    assert await _why(world, grant) is Why.SESSION_ENDED
    with pytest.raises(DroverError) as raised:
        await world.give()
    assert raised.value.reason in {Reason.NOT_FOUND, Reason.ARCHIVED}


async def test_a_change_of_the_vault_applies_at_once() -> None:
    world = GrantWorld()
    world.sessions["sesn_1"].vault_ids.append("vlt_1")
    world.change(credential())
    grant = await world.give()
    policy = await world.granted.of_grant(grant)
    token = placeholder_of(policy.known.holdings)
    headers = [(b"authorization", token)]
    sent = policy.substitution(target(_HOST)).headers(headers)
    assert sent == [(b"authorization", CANARY.encode())]

    world.change(credential(value="another-value"))
    policy = await world.granted.of_grant(grant)
    sent = policy.substitution(target(_HOST)).headers(headers)
    assert sent == [(b"authorization", b"another-value")]

    world.change(credential(hosts=["elsewhere.example"]))
    policy = await world.granted.of_grant(grant)
    assert policy.substitution(target(_HOST)).headers(headers) == headers

    world.change()  # deleted, or archived
    policy = await world.granted.of_grant(grant)
    with pytest.raises(RefusedError) as raised:
        policy.substitution(target(_HOST)).headers(headers)
    assert raised.value.refusal.reason is Why.PLACEHOLDER_UNKNOWN


async def test_another_replicas_change_of_the_vault_applies_within_a_second() -> None:
    world = GrantWorld()
    world.sessions["sesn_1"].vault_ids.append("vlt_1")
    grant = await world.give()
    world.vault = [credential()]  # its counter is not ours
    world.clock.passed += FRESH_SECONDS
    policy = await world.granted.of_grant(grant)
    assert [one.id for one in policy.known.credentials] == ["cred_1"]


async def test_while_sessions_cannot_be_asked_for_the_last_word_stands_for_ten_seconds() -> None:
    world = GrantWorld()
    grant = await world.give()
    await world.granted.of_grant(grant)
    world.failure = _AWAY
    for _ in range(int(STALE_SECONDS)):
        world.clock.passed += 0.9
        assert (await world.granted.of_grant(grant)).decide(target(_HOST)).allowed
    world.clock.passed += 2
    assert await _why(world, grant) is Why.POLICY_UNAVAILABLE
    world.failure = None
    assert (await world.granted.of_grant(grant)).decide(target(_HOST)).allowed


async def test_a_change_of_the_vault_applies_while_sessions_cannot_be_asked_for() -> None:
    world = GrantWorld()
    world.sessions["sesn_1"].vault_ids.append("vlt_1")
    world.change(credential())
    grant = await world.give()
    world.failure = _AWAY
    world.change()
    assert (await world.granted.of_grant(grant)).known.credentials == ()


async def test_a_session_that_was_never_known_lets_nothing_out_while_it_cannot_be() -> None:
    world = GrantWorld()
    grant = await world.give()
    fresh = GrantWorld(failure=_AWAY)  # a process that was just started
    assert await _why(fresh, grant) is Why.POLICY_UNAVAILABLE
