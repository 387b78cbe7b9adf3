"""V4 for grants: forged, foreign, outlived and taken back ones open nothing."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from services.vault_proxy.domain.grant import LIFE_SECONDS, new_grant, sign
from services.vault_proxy.domain.refusal import RefusedError, Why
from tests.doubles.egress import credential, session
from tests.doubles.grants import SIGNING, WORKSPACE, GrantWorld


async def _why(world: GrantWorld, grant: str, *, again: bool = False) -> Why:
    ask = world.granted.again if again else world.granted.of_grant
    with pytest.raises(RefusedError) as raised:
        await ask(grant)
    assert not grant or grant not in raised.value.refusal.message
    return raised.value.refusal.reason


def _signed(world: GrantWorld, **other: str) -> str:
    given = {"session_id": "sesn_1", "hand_id": "hand_1", "workspace_id": WORKSPACE} | other
    now = int(world.clock.now().timestamp() * 1_000_000)
    return sign(SIGNING, new_grant(**given, vault_ids=[], now=now))


async def test_a_grant_opens_the_session_that_it_names_for_the_hand_that_it_names() -> None:
    world = GrantWorld(sessions={"sesn_1": session(), "sesn_2": session(allowed=[])})
    world.sessions["sesn_2"].id = "sesn_2"
    first = await world.granted.of_grant(await world.give("sesn_1", "hand_1"))
    second = await world.granted.of_grant(await world.give("sesn_2", "hand_2"))
    assert (first.facts.session_id, first.facts.hand_id) == ("sesn_1", "hand_1")
    assert (second.facts.session_id, second.facts.hand_id) == ("sesn_2", "hand_2")
    assert second.known.networking.limited


async def test_a_forged_grant_opens_nothing_and_nothing_is_asked_for_it() -> None:
    world = GrantWorld()
    genuine = await world.give()
    asked = world.asked
    said, _, signature = genuine.partition(".")
    for forged in (said, f"{said}.{signature[:-2]}AA", f"{said[:-4]}AAAA.{signature}", "", "."):
        assert await _why(world, forged) is Why.GRANT_INVALID
    assert world.asked == asked


async def test_a_grant_ends_after_minutes_and_is_renewed() -> None:
    world = GrantWorld()
    grant = await world.give()
    world.clock.passed += LIFE_SECONDS
    assert await _why(world, grant) is Why.GRANT_EXPIRED
    assert await world.granted.of_grant(await world.give())


async def test_a_connection_that_began_with_a_grant_outlives_it_but_not_for_ever() -> None:
    world = GrantWorld()
    grant = await world.give()
    world.clock.passed += 3600
    assert await world.granted.again(grant)
    world.clock.passed += 12 * 3600
    assert await _why(world, grant, again=True) is Why.GRANT_EXPIRED


async def test_grants_that_were_taken_back_open_nothing_at_once_and_in_every_process() -> None:
    world = GrantWorld()
    grants = [await world.give("sesn_1", hand) for hand in ("hand_1", "hand_2")]
    for grant in grants:
        await world.granted.of_grant(grant)
    await world.giving.revoke(WORKSPACE, "sesn_1")
    for grant in grants:
        assert await _why(world, grant) is Why.GRANT_REVOKED
        assert await _why(world, grant, again=True) is Why.GRANT_REVOKED
    restarted = GrantWorld(revocations=world.revocations)
    assert await _why(restarted, grants[0]) is Why.GRANT_REVOKED


async def test_a_grant_that_is_given_after_others_were_taken_back_opens() -> None:
    world = GrantWorld()
    old = await world.give()
    await world.giving.revoke(WORKSPACE, "sesn_1")
    new = await world.give()
    assert await world.granted.of_grant(new)
    assert await _why(world, old) is Why.GRANT_REVOKED


async def test_a_grant_is_void_once_the_sessions_vaults_are_others() -> None:
    world = GrantWorld()
    world.sessions["sesn_1"].vault_ids.append("vlt_1")
    grant = await world.give()
    world.sessions["sesn_1"].vault_ids.append("vlt_2")
    world.clock.passed += 1
    assert await _why(world, grant) is Why.GRANT_REVOKED
    assert await world.granted.of_grant(await world.give())


async def test_a_grant_in_the_name_of_another_workspace_opens_nothing() -> None:
    world = GrantWorld()
    assert await _why(world, _signed(world, workspace_id="wrkspc_2")) is Why.SESSION_ENDED
    with pytest.raises(DroverError) as raised:
        await world.giving.open("wrkspc_2", "sesn_1", "hand_1")
    assert raised.value.reason is Reason.NOT_FOUND


async def test_the_same_placeholders_and_authority_are_told_at_every_renewal() -> None:
    world = GrantWorld()
    world.sessions["sesn_1"].vault_ids.append("vlt_1")
    world.change(credential(), credential("cred_2", "other-value"))
    first = await world.giving.open(WORKSPACE, "sesn_1", "hand_1")
    world.clock.passed += 200
    again = await GrantWorld(
        sessions=world.sessions, vault=world.vault, stored=world.stored
    ).giving.open(WORKSPACE, "sesn_1", "hand_2")
    assert [one.name for one in first.variables] == ["KEY_cred_1", "KEY_cred_2"]
    assert list(again.variables) == list(first.variables)
    assert again.ca_certificate == first.ca_certificate
    assert again.grant != first.grant
    assert "other-value" not in str(first)


async def test_each_session_has_an_authority_of_its_own_whose_key_is_kept_sealed() -> None:
    world = GrantWorld(sessions={"sesn_1": session(), "sesn_2": session()})
    await world.give("sesn_1")
    await world.give("sesn_2")
    one, two = world.stored.kept["sesn_1"], world.stored.kept["sesn_2"]
    assert one.certificate != two.certificate
    assert one.sealed_key.startswith(b"session authority\0wrkspc_1\0sesn_1|")
    world.sessions.clear()
    world.clock.passed += 2 * 24 * 3600
    await world.leftovers.sweep_some()
    assert not world.stored.kept
