from __future__ import annotations

import json

import pytest

from catalogue.package_hosts import PUBLIC, package_hosts
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.domain.addresses import AddressRules
from services.vault_proxy.domain.networking import networking_of
from services.vault_proxy.domain.paths import operator_rules
from services.vault_proxy.domain.policy import EgressPolicy, Installation
from services.vault_proxy.domain.refusal import Refusal, Why
from services.vault_proxy.domain.session import SessionFacts
from services.vault_proxy.domain.target import Target
from services.vault_proxy.domain.verdict import GitRoute, Verdict
from tests.doubles.egress import policy, session, target

_INDEX = PUBLIC["pip"][0]


def _refusal(made: Session, url: str, method: str = "GET", **settings: str) -> Refusal | None:
    return policy(made, **settings).decide(target(url, method)).refusal


@pytest.mark.parametrize(
    "url", ["https://a.example/", "http://a.example/", "http://93.184.216.34/"]
)
def test_unrestricted_networking_opens_every_host_at_the_ports_of_the_web(url: str) -> None:
    assert _refusal(session(), url) is None


def test_limited_networking_opens_what_is_listed() -> None:
    made = session(allowed=["a.example", "*.b.example"])
    for url in ("https://a.example/", "http://a.example/", "https://x.b.example/"):
        assert _refusal(made, url) is None
    for url in ("https://b.example/", "https://x.a.example/", "https://evil.example/"):
        refusal = _refusal(made, url)
        assert refusal is not None
        assert refusal.reason is Why.HOST_NOT_ALLOWED
        assert "list it in allowed_hosts of config.networking" in refusal.message


def test_limited_networking_that_lists_nothing_opens_nothing() -> None:
    assert _refusal(session(allowed=[]), "https://a.example/") is not None


def test_a_connect_is_judged_by_host_and_port_alone() -> None:
    made = session(allowed=["api.github.com"])
    assert _refusal(made, "https://api.github.com/", "CONNECT") is None
    assert _refusal(made, "https://evil.example/", "CONNECT") is not None
    assert _refusal(made, "https://api.github.com:22/", "CONNECT") is not None


def test_an_address_is_not_reached_under_limited_networking() -> None:
    refusal = _refusal(session(allowed=["a.example"]), "http://127.0.0.1:9000/")
    assert refusal is not None
    assert "reach it by its name" in refusal.message


def test_hosts_of_mcp_servers_are_opened_by_their_switch() -> None:
    servers = ["https://MCP.example/mcp", "https://[::1]:8443/mcp", "no url"]
    refusal = _refusal(session(allowed=[], servers=servers), "https://mcp.example/any")
    assert refusal is not None
    assert "set allow_mcp_servers" in refusal.message
    opened = session(allowed=[], servers=servers, allow_servers=True)
    assert _refusal(opened, "https://mcp.example/any") is None
    assert _refusal(opened, "https://other.example/") is not None


def test_hosts_of_package_indexes_are_opened_by_their_switch() -> None:
    refusal = _refusal(session(allowed=[]), f"https://{_INDEX}/simple/")
    assert refusal is not None
    assert "set allow_package_managers" in refusal.message
    opened = session(allowed=[], allow_packages=True)
    for hosts in PUBLIC.values():
        for host in hosts:
            assert _refusal(opened, f"https://{host}/") is None


def test_an_operator_has_packages_come_from_elsewhere() -> None:
    opened = session(allowed=[], allow_packages=True)
    mine = {"packages": "pip=packages.corp.example, pip=files.corp.example"}
    assert _refusal(opened, "https://packages.corp.example/", **mine) is None
    assert _refusal(opened, "https://files.corp.example/", **mine) is None
    assert _refusal(opened, f"https://{_INDEX}/", **mine) is not None
    assert _refusal(opened, f"https://{PUBLIC['npm'][0]}/", **mine) is None


@pytest.mark.parametrize("text", ["conda=a.example", "pip", "pip=", "pip=*.com", "pip=1.2.3.4"])
def test_a_list_of_package_hosts_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"pip|conda"):
        package_hosts(text)


@pytest.mark.parametrize("port", [22, 25, 8080, 8443, 65535])
def test_another_port_is_refused_before_any_name_is_resolved(port: int) -> None:
    refusal = _refusal(session(), f"http://a.example:{port}/")
    assert refusal is not None
    assert refusal.reason is Why.PORT_NOT_ALLOWED
    assert "DROVER_EGRESS_ALLOW_PRIVATE" in refusal.message


def test_a_port_that_is_listed_is_left_to_the_judgement_of_the_address() -> None:
    assert _refusal(session(), "http://a.example:9000/", private="127.0.0.1/32:9000") is None


def test_trace_is_refused() -> None:
    refusal = _refusal(session(), "https://a.example/", "TRACE")
    assert refusal is not None
    assert refusal.reason is Why.METHOD_NOT_ALLOWED


@pytest.mark.parametrize("networking", ["none", "empty"])
def test_a_session_whose_networking_cannot_be_read_reaches_nothing(networking: str) -> None:
    made = Session(id="sesn_1")
    if networking == "empty":
        made.environment.cloud.SetInParent()
    refusal = _refusal(made, "https://a.example/")
    assert refusal is not None
    assert refusal.reason is Why.POLICY_UNAVAILABLE


def test_a_stored_pattern_that_is_taken_no_longer_opens_nothing() -> None:
    made = session(allowed=["*.com", "127.0.0.1", "a.example"])
    assert _refusal(made, "https://evil.com/") is not None
    assert _refusal(made, "http://127.0.0.1/") is not None
    assert _refusal(made, "https://a.example/") is None


def test_for_a_self_hosted_environment_the_control_plane_fetches_from_every_public_host() -> None:
    made = Session(id="sesn_1")
    made.environment.self_hosted.SetInParent()
    assert _refusal(made, "https://a.example/") is None


def test_a_repository_is_reached_whatever_the_networking_says() -> None:
    route = Verdict(git=GitRoute("sesrsc_1", "https://git.example"))

    class OneRepository:
        def judge(self, facts: SessionFacts, target: Target) -> Verdict | None:
            return route if target.host.text == "git.example" else None

    made = session(allowed=[])
    hosts = package_hosts("")
    rules = EgressPolicy(
        Installation.of(AddressRules(()), hosts),
        networking_of(made, hosts),
        SessionFacts("wrkspc_1", "hand_1", made),
        OneRepository(),
    )
    assert rules.decide(target("https://git.example/o/r/info/refs")) is route
    assert not rules.decide(target("https://a.example/")).allowed


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("{}", "must be a JSON list"),
        ("[", "must be a JSON list"),
        ([1], "rule 0: must be an object"),
        ([{"effect": "deny"}], "rule 0: must be an object"),
        ([{"effect": "deny", "hosts": ["a.example"], "path": []}], "rule 0: must be an object"),
        ([{"effect": "ask", "hosts": ["a.example"]}], "effect must be allow or deny"),
        ([{"effect": "deny", "hosts": []}], "hosts must name a host"),
        ([{"effect": "deny", "hosts": "a.example"}], "hosts must be a list"),
        ([{"effect": "deny", "hosts": ["*.com"]}], "whole registry"),
        ([{"effect": "deny", "hosts": ["a.example"], "methods": ["post"]}], "capital letters"),
        ([{"effect": "deny", "hosts": ["a.example"], "paths": ["x"]}], "begin with a slash"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_when_it_is_set(rule: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        operator_rules(rule if isinstance(rule, str) else json.dumps(rule))
