"""Settings of the vault proxy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from catalogue.repositories import DEFAULT_HOSTS, checked_hosts
from chassis.settings import SecretText
from identity.settings import PeerSettings
from services.vault_proxy.crypto.settings import KeySettings
from services.vault_proxy.mcp.settings import McpSettings
from services.vault_proxy.proxy.settings import EgressSettings
from services.vault_proxy.web.settings import SearchSettings


class VaultProxySettings(KeySettings, EgressSettings, McpSettings, SearchSettings, PeerSettings):
    """Its database, the keys of what is in it, and what it lets out."""

    vault_proxy_database_url: SecretText = Field(
        default=None, description="The database of the vault proxy alone."
    )
    vault_audit_days: int = Field(
        default=90, ge=1, description="Entries of the audit trail are kept for so many days."
    )
    git_hosts: Annotated[str, AfterValidator(checked_hosts)] = Field(
        default=DEFAULT_HOSTS,
        description="The hosts whose repositories sessions may mount, each with where it is "
        "reached: HOST=https://UPSTREAM, separated by commas (docs/credentials.md).",
    )

    def listening(self) -> Iterator[str]:
        """Where parts of Drover listen, as far as this process is told."""
        yield from (self.listen, self.metrics_listen, self.egress_listen)
        yield from (self.registry_address, self.session_address, self.hands_address)
        yield from (self.vault_proxy_address, *self.brain_addresses, *self.egress_own_addresses)

    def databases(self, service: str) -> Iterator[str]:
        """URLs of databases, passwords included."""
        yield self.database(service).open()
        if self.database_url is not None:
            yield self.database_url.open()
