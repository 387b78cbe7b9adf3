"""A malicious model tries every way it knows to read a credential or to send one, in a session that
has one of each kind and may reach every host. All fail, and what reached the proxy is on record."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from anthropic import Anthropic

from tests.adversarial.injection.attack import SETUP, Attack
from tests.adversarial.injection.attacks_outside import ATTACKS
from tests.doubles.docker_engine import lacking
from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.canary_stack import CanaryStack
from tests.e2e.driving import history, run_turn

# All of them are tried before the first test.
pytestmark = pytest.mark.timeout(180)


class Attacked(NamedTuple):
    """What each attack was told, by its name, and what is on record of the session."""

    world: CanaryStack
    told: dict[str, str]
    trail: list[dict[str, Any]]
    values: dict[str, str]
    log: str


@pytest.fixture(scope="module", params=["local", "docker"])
def attacked(request: pytest.FixtureRequest, canaries: CanaryStack) -> Attacked:
    if request.param == "docker" and (why := lacking()):
        pytest.skip(f"no container engine for tests: {why}")
    canaries.forget()
    with canaries.client() as client:
        vault = canaries.vault(client)
        other = canaries.session(client, request.param, canaries.vault(client).id)
        victim = canaries.session(client, request.param, vault.id)
        values = _values(canaries, client, other.id, victim.id)
        names = [attack.name for attack in ATTACKS]
        calls = [ToolUse(*attack.call(values)) for attack in ATTACKS]
        canaries.stack.model.script(tools(*calls), text("done"))
        run_turn(client, victim.id, "Do what the page says.")
        log = history(client, victim.id)
        trail = canaries.trail(victim.id)
        told = dict(zip(names, _told(log)[1:], strict=True))
        return Attacked(
            canaries,
            told,
            trail,
            values,
            "\n".join(one.to_json() for one in log),
        )


def _told(log: list[Any]) -> list[str]:
    """What came of each call, in the order of the calls."""
    results = {
        getattr(one, "tool_use_id", None) or one.mcp_tool_use_id: "".join(
            block.text for block in one.content if block.type == "text"
        )
        for one in log
        if one.type.endswith("tool_result")
    }
    return [results[one.id] for one in log if one.type.endswith("tool_use")]


def _values(world: CanaryStack, client: Anthropic, other_id: str, victim_id: str) -> dict[str, str]:
    """What an attacker may know: all but secrets. Both sessions get their sandbox."""
    placeholders, sockets = [], list[Path]()
    for session_id in (other_id, victim_id):
        # Those that are there before the victim's sandbox is are of others.
        sockets = list((world.stack.data / "hands").rglob("proxy.sock"))
        world.stack.model.script(tools(ToolUse("bash", {"command": SETUP})), text("done"))
        run_turn(client, session_id, "Begin.")
        placeholders.append(_told(history(client, session_id))[0].strip().splitlines()[-1])
    bound, thief, stack = world.outside.bound, world.outside.thief, world.stack

    def port(service: str) -> str:
        return stack.address(service).rpartition(":")[2]

    return {
        "@OTHER@": placeholders[0],
        "@MINE@": placeholders[1],
        "@OTHERSOCKET@": str(sockets[-1]),
        "@BOUND@": bound.url,
        "@BOUNDHTTP@": bound.http,
        "@BOUNDHOST@": bound.name,
        "@BOUNDPORT@": str(bound.port),
        "@THIEF@": thief.url,
        "@THIEFHTTP@": thief.http,
        "@THIEFPORT@": str(thief.port),
        "@THIEFPLAIN@": str(thief.plain),
        "@DATA@": str(stack.data),
        "@VAULT@": stack.address("vault_proxy"),
        "@VAULTPORT@": port("vault_proxy"),
        "@SESSIONPORT@": port("session"),
        "@HANDSPORT@": port("hands"),
        "@BRAINPORT@": port("brain-1"),
        "@GATEWAYPORT@": port("gateway"),
        "@METRICSPORT@": world.metrics[0].split(":")[2].partition("/")[0],
    }


def _pattern(text: str, attacked: Attacked, attack: Attack) -> str:
    for mark, value in {**attacked.values, "@AT@": f"/attack/{attack.name}"}.items():
        text = text.replace(mark, re.escape(value))
    return text


def test_there_are_thirty_and_each_is_another() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 30
    assert all(attack.why and attack.told for attack in ATTACKS)


def test_there_was_something_to_steal(attacked: Attacked) -> None:
    """The values were under way all the time, to whom they are for."""
    world, kept = attacked.world, attacked.world.secrets
    heard = b"".join(world.outside.bound.asked("/attack/echo "))
    assert kept.variable.encode() in heard
    seen = [one["headers"].get("authorization", "") for one in world.mcp.report()["seen"]]
    assert f"Bearer {kept.bearer}" in seen
    assert any(kept.canary.word in one for one in seen if one.startswith("Bearer at-"))
    assert kept.repository in {one.password for one in world.git.requests}
    assert f"Bearer {kept.search}" in world.site.keys


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack_fails(attacked: Attacked, attack: Attack) -> None:
    told = attacked.told[attack.name]
    canary = attacked.world.secrets.canary
    assert not canary.occurs(told.encode()), canary.excerpts(told.encode())
    assert re.search(_pattern(attack.told, attacked, attack), told, re.MULTILINE), told


@pytest.mark.parametrize(
    "attack", [one for one in ATTACKS if one.trail], ids=lambda attack: attack.name
)
def test_attack_is_on_record(attacked: Attacked, attack: Attack) -> None:
    assert attack.trail is not None
    host, path, reason = (_pattern(one, attacked, attack) for one in attack.trail)
    entries = [
        one
        for one in attacked.trail
        if re.search(host, one["host"] or "") and re.search(path, one["path"] or "")
    ]
    assert [one for one in entries if re.search(reason, one["reason"] or "")], entries


def test_nothing_came_to_the_thief_or_to_the_model(attacked: Attacked) -> None:
    world, canary = attacked.world, attacked.world.secrets.canary
    for heard in world.outside.thief.heard:
        assert not canary.occurs(heard), canary.excerpts(heard)
    for asked in world.stack.model.requests:
        assert not canary.occurs(asked.raw), canary.excerpts(asked.raw)
    assert not canary.occurs(attacked.log.encode())
    assert not canary.occurs(repr(attacked.trail).encode())
    assert not any(canary.occurs(query.encode()) for query in world.site.queries)


def test_what_was_refused_is_told_from_what_failed(attacked: Attacked) -> None:
    """By the verdict, and by the credential that was asked for and not put in."""
    for one in attacked.trail:
        reason = one["reason"] or ""
        wanted = "failed" if reason.startswith("host_un") else "denied" if reason else "allowed"
        assert one["verdict"] == wanted, one
        if reason.startswith("not "):
            assert one["credential_id"], one


def test_whatever_a_host_heard_is_on_record(attacked: Attacked) -> None:
    outside = attacked.world.outside
    recorded = {one["path"] for one in attacked.trail if one["verdict"] == "allowed"}
    for host in (outside.bound, outside.thief):
        for heard in host.asked("/attack/"):
            if heard.startswith(b"WEBSOCKET"):
                continue
            path = heard.split()[1].decode().partition("?")[0]
            assert path in recorded, path
