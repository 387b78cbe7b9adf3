"""Which hosts the web tools may show: the tool's own domains, and the session's networking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.vault_proxy.domain.networking import networking_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from catalogue.hosts import Host
    from drover.agent.v1.tool_pb2 import WebSettings
    from drover.session.v1.session_pb2 import Session


class WebRules:
    """What one call may reach (SEMANTICS §2).

    A domain of the tool's settings covers its subdomains, and may have a path behind it. Limited
    networking binds the web tools to `allowed_hosts` alone: what else it allows is the sandbox's.
    """

    def __init__(self, settings: WebSettings, session: Session) -> None:
        self._allowed = _Domains(settings.allowed_domains)
        self._blocked = _Domains(settings.blocked_domains)
        self._networking = networking_of(session, {})

    def refusal(self, host: Host, path: str) -> str:
        """Why that may not be shown, and what would allow it; empty where it may."""
        if not self._networking.readable:
            return "The session's networking is not known, so that nothing may be reached."
        if self._networking.limited and host not in self._networking.listed:
            return (
                f"{host} is not among the allowed_hosts of the session's environment, whose "
                "networking is limited."
            )
        if self._allowed and not self._allowed.cover(host, path):
            return f"{host} is not among the tool's allowed_domains."
        # An address could be any domain's.
        if self._blocked and (host.address is not None or self._blocked.cover(host, path)):
            return f"{host} is among the tool's blocked_domains, or an address in place of a name."
        return ""


class _Domains:
    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = [entry.partition("/")[::2] for entry in entries]

    def __bool__(self) -> bool:
        return bool(self._entries)

    def cover(self, host: Host, path: str) -> bool:
        if host.address is not None:
            return False
        name = host.text
        for domain, below in self._entries:
            if name != domain and not name.endswith(f".{domain}"):
                continue
            rest = path.lstrip("/")
            if not below or rest == below or rest.startswith(f"{below}/"):
                return True
        return False
