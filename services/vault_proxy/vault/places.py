"""What each stored secret is sealed for, and the form in which it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from chassis.secret import Secret
from services.vault_proxy.crypto.aead import framed
from services.vault_proxy.crypto.envelope import Place
from services.vault_proxy.domain.binding import binding
from services.vault_proxy.domain.sealed import CREDENTIAL, SESSION_SECRET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drover.vault.v1.credential_pb2 import Credential
    from services.vault_proxy.domain.vault_ports import WrappedRow


def credential_place(workspace_id: str, credential: Credential) -> Place:
    """Of a credential's secrets: they open for no other host, either."""
    bound = framed(binding(credential.auth))
    return Place(CREDENTIAL, workspace_id, credential.vault_id, credential.id, bound)


def session_place(workspace_id: str, session_id: str, resource_id: str) -> Place:
    """Of the secret of a session's resource."""
    return Place(SESSION_SECRET, workspace_id, session_id, resource_id)


def place_of(row: WrappedRow) -> Place:
    """Of any wrapped key, for its key's context alone."""
    return Place(row.kind, row.workspace_id, row.owner_id, row.id)


def packed(secrets: Mapping[str, Secret]) -> bytes:
    """A credential's secrets as they are sealed, all together."""
    return json.dumps({name: secret.open() for name, secret in secrets.items()}).encode()


def unpacked(plain: bytes) -> dict[str, Secret]:
    """The secrets again."""
    return {name: Secret(value) for name, value in json.loads(plain).items()}
