"""Sessions, credentials and requests for tests of what is let out."""

from __future__ import annotations

from collections.abc import Sequence

from catalogue.hosts import parse_url
from catalogue.package_hosts import package_hosts
from chassis.secret import Secret
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.domain.addresses import AddressRules, openings
from services.vault_proxy.domain.holdings import Holdings
from services.vault_proxy.domain.networking import networking_of
from services.vault_proxy.domain.paths import operator_rules
from services.vault_proxy.domain.policy import EgressPolicy, Installation
from services.vault_proxy.domain.session import EnvironmentCredential, SessionFacts
from services.vault_proxy.domain.substitution import RequestSubstitution
from services.vault_proxy.domain.target import Target
from services.vault_proxy.domain.verdict import Verdict

KEY = b"k" * 32
CANARY = 'sk-canary/7+A="é'


class NoRepositories:
    """A session without any."""

    def judge(self, facts: SessionFacts, target: Target) -> Verdict | None:
        return None


def session(
    *,
    allowed: Sequence[str] | None = None,
    servers: Sequence[str] = (),
    allow_servers: bool = False,
    allow_packages: bool = False,
) -> Session:
    """A session; with `allowed` hosts, even none, its networking is limited."""
    made = Session(id="sesn_1", environment_id="env_1")
    networking = made.environment.cloud.networking
    if allowed is None:
        networking.unrestricted.SetInParent()
    else:
        networking.limited.allowed_hosts.extend(allowed)
        networking.limited.allow_mcp_servers = allow_servers
        networking.limited.allow_package_managers = allow_packages
    for number, url in enumerate(servers):
        made.agent.mcp_servers.add(name=f"server-{number}", url=url)
    return made


def policy(of: Session, *, private: str = "", rules: str = "", packages: str = "") -> EgressPolicy:
    """The policy of a session, in an installation with such settings."""
    hosts = package_hosts(packages)
    return EgressPolicy(
        Installation.of(AddressRules(openings(private)), hosts, operator_rules(rules)),
        networking_of(of, hosts),
        SessionFacts("wrkspc_1", "hand_1", of),
        NoRepositories(),
    )


def target(url: str, method: str = "GET") -> Target:
    """A request for `url`; for a `CONNECT` its path counts for nothing."""
    scheme, host, port, path, query = parse_url(url)
    if method == "CONNECT":
        path = query = ""
    return Target(method, scheme, host, port, path, query)


def credential(
    credential_id: str = "cred_1",
    value: str = CANARY,
    *,
    hosts: Sequence[str] | None = ("api.example.com",),
    header: bool = True,
    body: bool = True,
) -> EnvironmentCredential:
    """A credential, bound to `hosts`, or to none."""
    return EnvironmentCredential(
        id=credential_id,
        vault_id="vlt_1",
        name=f"KEY_{credential_id}",
        value=Secret(value),
        allowed_hosts=None if hosts is None else tuple(hosts),
        in_header=header,
        in_body=body,
    )


def holdings(*credentials: EnvironmentCredential, session_id: str = "sesn_1") -> Holdings:
    """A session's credentials."""
    return Holdings(KEY, session_id, credentials)


def placeholder_of(held: Holdings, credential_id: str = "cred_1") -> bytes:
    """What the sandbox sees of one."""
    return next(text for text, one in held.placeholders if one.id == credential_id)


def substitution(
    held: Holdings, url: str = "https://api.example.com/v1", method: str = "POST"
) -> RequestSubstitution:
    """The credentials of one request."""
    return RequestSubstitution(held, target(url, method))
