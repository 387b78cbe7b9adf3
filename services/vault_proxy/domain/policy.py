"""What is let out, decided for each request by itself. Pure: no name is resolved before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.vault_proxy.domain.addresses import AddressRules, port_refusal
from services.vault_proxy.domain.refusal import Refusal, Why
from services.vault_proxy.domain.uploads import upload_rules
from services.vault_proxy.domain.verdict import Verdict

if TYPE_CHECKING:
    from services.vault_proxy.domain.networking import Networking
    from services.vault_proxy.domain.paths import PathRule
    from services.vault_proxy.domain.ports import GitRules
    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.domain.target import Target

_ALLOWED = Verdict()
_TRACE = Verdict(
    Refusal(
        Why.METHOD_NOT_ALLOWED,
        "the method TRACE is not allowed: it has a server send back what it was sent",
    )
)


@dataclass(frozen=True, slots=True)
class Installation:
    """Rules of the installation, the same for every session."""

    addresses: AddressRules
    package_hosts: Mapping[str, Sequence[str]]
    operator_rules: tuple[PathRule, ...]
    upload_rules: tuple[PathRule, ...]

    @classmethod
    def of(
        cls,
        addresses: AddressRules,
        package_hosts: Mapping[str, tuple[str, ...]],
        operator_rules: tuple[PathRule, ...] = (),
    ) -> Installation:
        """The operator's rules, and the default ones behind them."""
        return cls(addresses, package_hosts, operator_rules, upload_rules(package_hosts))


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """The rules for one session's requests."""

    installation: Installation
    networking: Networking
    facts: SessionFacts
    git: GitRules

    def decide(self, target: Target) -> Verdict:
        """Whether the request may go out; for a `CONNECT`, whether any request to there might.

        In order: a repository of the session is reached whatever else is said; then the method, the
        host, the port; at last what is sent there. Where it is sent, the address behind the name,
        is judged once it is known (`AddressRules`).
        """
        if (verdict := self.git.judge(self.facts, target)) is not None:
            return verdict
        if target.method == "TRACE":
            return _TRACE
        refusal = self.networking.refusal(target.host) or self._port_refusal(target)
        if refusal is None and target.method != "CONNECT":
            refusal = self._path_refusal(target)
        return _ALLOWED if refusal is None else Verdict(refusal)

    def _port_refusal(self, target: Target) -> Refusal | None:
        if self.installation.addresses.port_is_possible(target.port):
            return None
        return port_refusal(target.port, f"127.0.0.1/32:{target.port}")

    def _path_refusal(self, target: Target) -> Refusal | None:
        for rule in self.installation.operator_rules:
            if rule.means(target):
                if rule.allow:
                    return None
                return Refusal(
                    Why.UPLOAD_NOT_ALLOWED,
                    f"{target.method} of this path at {target.host} is denied by a rule of the "
                    "operator, in DROVER_EGRESS_RULES",
                )
        if target.method in ("GET", "HEAD", "OPTIONS"):
            return None
        for rule in self.installation.upload_rules:
            if not rule.means(target):
                continue
            if rule.allow or (rule.tenants and target.host.text in self.networking.exact):
                return None
            return Refusal(
                Why.UPLOAD_NOT_ALLOWED,
                f"{rule.about} at {target.host} is denied by default, since anybody may have an "
                "account there: the operator can allow it by a rule in DROVER_EGRESS_RULES",
            )
        return None
