"""A vault without a process around it: real encryption over the stores in memory, or others."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from chassis.clock import SystemClock
from chassis.ids import new_id
from chassis.secret import Secret
from drover.vault.v1 import vault_credential_service_pb2 as pb
from drover.vault.v1.vault_pb2 import Vault
from services.vault_proxy.crypto.envelope import Envelopes
from services.vault_proxy.crypto.environment_keys import EnvironmentKeys
from services.vault_proxy.crypto.keyring import Keyring
from services.vault_proxy.domain.credential import new_credential, updated_credential
from services.vault_proxy.vault.holdings import Holdings
from services.vault_proxy.vault.safe import Safe
from services.vault_proxy.vault.server_credentials import VaultServerCredentials
from tests.doubles.vault_store import MemoryCredentialStore, MemoryVaults, MemoryVaultStore

if TYPE_CHECKING:
    from chassis.clock import Clock
    from drover.vault.v1.credential_pb2 import Credential
    from services.vault_proxy.domain.vault_ports import CredentialStore, VaultStore

HOME = "wrkspc_home"
URL = "https://mcp.example.com/mcp"


def environment_keys(*numbers: int) -> Secret:
    """`DROVER_VAULT_KEYS` with keys that tests can tell."""
    each = (f"{number}:{base64.b64encode(bytes([number]) * 32).decode()}" for number in numbers)
    return Secret(",".join(each))


def keyring(*numbers: int) -> Keyring:
    """A keyring with keys of the environment."""
    return Keyring(EnvironmentKeys(environment_keys(*(numbers or (1,)))))


@dataclass
class VaultDouble:
    """Credentials written and read as the service does it, in one workspace."""

    keys: Keyring = field(default_factory=keyring)
    clock: Clock = field(default_factory=SystemClock)
    credentials: CredentialStore | None = None
    vaults: VaultStore | None = None
    key_seconds: float = 300.0

    def __post_init__(self) -> None:
        shared = MemoryVaults(SystemClock())
        self.vault_store = self.vaults or MemoryVaultStore(shared)
        self.store = self.credentials or MemoryCredentialStore(shared)
        self.envelopes = Envelopes(self.keys, self.clock, self.key_seconds)
        self.holdings = Holdings(self.store, self.envelopes, self.clock)
        self.safe = Safe(self.store, self.envelopes, self.holdings)
        self.servers = VaultServerCredentials(self.store, self.holdings, self.safe)

    async def new_vault(self, vault_id: str, workspace_id: str = HOME) -> None:
        """Makes an empty vault."""
        vault = Vault(id=vault_id, display_name=vault_id)
        vault.created_at.FromDatetime(datetime.now(UTC))
        await self.vault_store.add(workspace_id, vault)

    async def add(self, vault_id: str, *, workspace_id: str = HOME, **auth: Any) -> Credential:
        """Creates a credential; `auth` is that of `NewAuth`."""
        request = pb.CreateCredentialRequest(vault_id=vault_id, auth=auth)
        written = new_credential(request, new_id("vcrd"), datetime.now(UTC))
        return await self.safe.add(workspace_id, written, None)

    async def change(
        self, credential: Credential, *, workspace_id: str = HOME, **fields: Any
    ) -> Credential:
        """Changes a credential; `fields` are those of `UpdateCredentialRequest`."""
        request = pb.UpdateCredentialRequest(**fields)
        return await self.safe.revise(
            workspace_id,
            credential.vault_id,
            credential.id,
            lambda stored: updated_credential(stored, request, datetime.now(UTC)),
        )

    async def archive(self, credential: Credential, workspace_id: str = HOME) -> None:
        """Archives a credential."""
        where = workspace_id, credential.vault_id, credential.id
        await self.safe.archive(*where, datetime.now(UTC), None)


def bearer(token: str, url: str = URL) -> dict[str, Any]:
    """`auth` of a static token."""
    return {"static_bearer": {"mcp_server_url": url, "token": token}}


def variable(name: str, value: str, *hosts: str) -> dict[str, Any]:
    """`auth` of a variable, for some hosts or for all."""
    networking = {"limited": {"allowed_hosts": hosts}} if hosts else {"unrestricted": {}}
    return {
        "environment_variable": {
            "secret_name": name,
            "secret_value": value,
            "networking": networking,
        }
    }


def oauth(access: str, refresh: str = "", *, url: str = URL) -> dict[str, Any]:
    """`auth` of an OAuth token, with a refresh token or without."""
    auth: dict[str, Any] = {"mcp_server_url": url, "access_token": access}
    if refresh:
        auth["refresh"] = {
            "client_id": "drover",
            "refresh_token": refresh,
            "token_endpoint": "https://auth.example.com/token",
            "token_endpoint_auth": {"client_secret_post": {"client_secret": "client"}},
        }
    return {"mcp_oauth": auth}
