from __future__ import annotations

import asyncio
from datetime import UTC
from types import SimpleNamespace

import pytest
from cryptography import x509

from chassis.errors import DroverError, Reason
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.domain.audit import Kind, Outcome
from services.vault_proxy.domain.grant import ENDED, LIFE_SECONDS
from services.vault_proxy.domain.refusal import RefusedError
from tests.doubles.egress import credential, session
from tests.doubles.grants import WORKSPACE, GrantWorld


async def test_what_a_hand_needs_comes_with_its_grant() -> None:
    world = GrantWorld()
    answer = await world.giving.open(WORKSPACE, "sesn_1", "hand_1")
    ends = answer.expires_at.ToDatetime(UTC) - world.clock.now()
    assert ends.total_seconds() == LIFE_SECONDS
    certificate = x509.load_pem_x509_certificate(answer.ca_certificate.encode())
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    assert [(one.kind, one.verdict, one.hand_id) for one in world.trail] == [
        (Kind.GRANT, Outcome.ALLOWED, "hand_1")
    ]


async def test_a_session_that_has_ended_is_refused_a_grant_and_that_is_recorded() -> None:
    world = GrantWorld()
    world.sessions["sesn_1"].archived_at.GetCurrentTime()
    with pytest.raises(DroverError) as raised:
        await world.giving.open(WORKSPACE, "sesn_1", "hand_1")
    assert raised.value.reason is Reason.ARCHIVED
    assert [(one.verdict, one.reason) for one in world.trail] == [(Outcome.DENIED, "session_ended")]


@pytest.mark.parametrize("deleted", [True, False])
async def test_nothing_is_kept_for_a_session_that_ends_while_it_asks_for_a_grant(
    *, deleted: bool
) -> None:
    world = GrantWorld()
    await world.give()
    if deleted:
        world.sessions.clear()
    else:
        world.sessions["sesn_1"].archived_at.GetCurrentTime()
    world.clock.passed += 1
    await world.authorities.forget(WORKSPACE, "sesn_1")  # as its end has it
    with pytest.raises(DroverError):
        await world.give()
    assert world.stored.kept == {}


async def test_a_grant_outlives_its_session_and_has_nothing_signed_for_it() -> None:
    world = GrantWorld()
    live = await world.granted.of_grant(await world.give())
    assert (await live.authority()).session_id == "sesn_1"
    await world.authorities.forget(WORKSPACE, "sesn_1")
    with pytest.raises(RefusedError) as raised:
        await live.authority()
    assert raised.value.refusal == ENDED
    assert world.stored.kept == {}


async def test_nobody_else_has_a_workspaces_authorities_removed() -> None:
    world = GrantWorld()
    await world.give()
    with pytest.raises(DroverError):
        await world.giving.open("wrkspc_other", "sesn_1", "hand_1")
    assert list(world.stored.kept) == ["sesn_1"]


async def test_a_session_that_is_unknown_is_refused_a_grant_and_that_is_recorded() -> None:
    world = GrantWorld(sessions={})
    with pytest.raises(DroverError) as raised:
        await world.giving.open(WORKSPACE, "sesn_1", "hand_1")
    assert raised.value.reason is Reason.NOT_FOUND
    assert [(one.verdict, one.reason) for one in world.trail] == [(Outcome.DENIED, "not_found")]


async def test_a_credential_whose_host_the_environment_closes_is_a_problem() -> None:
    made = session(allowed=["*.open.example"])
    made.vault_ids.append("vlt_1")
    world = GrantWorld(sessions={"sesn_1": made})
    world.change(
        credential("cred_1", hosts=["a.open.example"]),
        credential("cred_2", hosts=["a.open.example", "closed.example"]),
        credential("cred_3", hosts=["*.closed.example"]),
        credential("cred_4", hosts=None),
        credential("cred_5", hosts=["*.open.example"]),
    )
    answer = await world.giving.open(WORKSPACE, "sesn_1", "hand_1")
    told = {one.credential_host_unreachable_error.credential_id: one for one in answer.problems}
    assert set(told) == {"cred_2", "cred_3"}
    assert told["cred_2"].credential_host_unreachable_error.vault_id == "vlt_1"
    assert "closed.example, which" in told["cred_2"].message
    assert "a.open.example" not in told["cred_2"].message
    assert len(answer.variables) == 5


async def test_a_self_hosted_session_is_given_no_variables() -> None:
    made = Session(id="sesn_1", vault_ids=["vlt_1"])
    made.environment.self_hosted.SetInParent()
    world = GrantWorld(sessions={"sesn_1": made})
    world.change(credential())
    answer = await world.giving.open(WORKSPACE, "sesn_1", "hand_1")
    assert not answer.variables
    assert answer.grant


async def test_repositories_are_told_with_what_is_to_be_checked_out() -> None:
    world = GrantWorld()
    for number, branch in (("1", "main"), ("2", "")):
        repository = world.sessions["sesn_1"].resources.add().github_repository
        repository.id, repository.url = f"sesrsc_{number}", f"https://github.com/o/r{number}"
        repository.mount_path = f"/workspace/r{number}"
        if branch:
            repository.checkout.branch.name = branch
    answer = await world.giving.open(WORKSPACE, "sesn_1", "hand_1")
    told = [(one.resource_id, one.mount_path, one.branch) for one in answer.repositories]
    assert told == [("sesrsc_1", "/workspace/r1", "main"), ("sesrsc_2", "/workspace/r2", "")]


async def test_two_hands_that_come_at_once_are_given_one_authority() -> None:
    world = GrantWorld()
    answers = await asyncio.gather(
        *(world.giving.open(WORKSPACE, "sesn_1", f"hand_{number}") for number in range(5))
    )
    assert len({answer.ca_certificate for answer in answers}) == 1


async def test_what_is_kept_of_a_session_that_lives_stays() -> None:
    world = GrantWorld()
    await world.give()
    world.clock.passed += 2 * 24 * 3600
    assert await world.leftovers.sweep_some() == 1
    assert world.stored.kept
    assert await world.leftovers.sweep_some() == 0


async def test_nothing_is_removed_while_sessions_cannot_be_asked_for() -> None:
    world = GrantWorld()
    await world.give()
    world.clock.passed += 2 * 24 * 3600
    world.failure = DroverError(Reason.UNAVAILABLE, "away")
    assert await world.leftovers.sweep_some() == 0
    assert world.stored.kept


async def test_a_session_that_cannot_be_asked_for_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = GrantWorld(sessions={name: session() for name in ("sesn_1", "sesn_2", "sesn_3")})
    for name in ("sesn_1", "sesn_2", "sesn_3"):
        await world.giving.open(WORKSPACE, name, "hand_1")
        world.clock.passed += 1
    world.clock.passed += 2 * 24 * 3600
    broken = {"sesn_1"}

    async def get(_workspace_id: str, session_id: str) -> Session:
        if session_id in broken:
            raise DroverError(Reason.INTERNAL, "it is broken")
        raise DroverError(Reason.NOT_FOUND, "it is gone")

    monkeypatch.setattr(world.leftovers, "_sessions", SimpleNamespace(get=get))
    assert await world.leftovers.sweep_some() == 3
    assert set(world.stored.kept) == {"sesn_1"}
    assert await world.leftovers.sweep_some() == 0
    broken.clear()
    world.clock.passed += 301
    assert await world.leftovers.sweep_some() == 1
    assert not world.stored.kept
