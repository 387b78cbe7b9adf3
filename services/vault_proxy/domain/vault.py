"""A vault's life: made, renamed, archived, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalogue.resources.metadata import merge
from catalogue.resources.presence import given
from drover.vault.v1.vault_pb2 import Vault
from services.vault_proxy.domain.missing import vault_archived

if TYPE_CHECKING:
    from datetime import datetime

    from drover.vault.v1.vault_service_pb2 import CreateVaultRequest, UpdateVaultRequest


def new_vault(request: CreateVaultRequest, vault_id: str, now: datetime) -> Vault:
    """The vault that `request` describes."""
    vault = Vault(id=vault_id, display_name=request.display_name, metadata=request.metadata)
    vault.created_at.FromDatetime(now)
    vault.updated_at.FromDatetime(now)
    return vault


def updated_vault(stored: Vault, request: UpdateVaultRequest, now: datetime) -> Vault:
    """`stored` with what `request` gives, or `stored` itself where that changes nothing.

    Raises ARCHIVED, and INVALID_ARGUMENT for too much metadata.
    """
    if stored.HasField("archived_at"):
        raise vault_archived(stored.id)
    named = given(request)
    vault = Vault()
    vault.CopyFrom(stored)
    if "display_name" in named and request.HasField("display_name"):  # null keeps
        vault.display_name = request.display_name
    if "metadata" in named:
        if not request.HasField("metadata"):
            vault.metadata.clear()
        merge(vault.metadata, request.metadata)
    if vault == stored:
        return stored
    vault.updated_at.FromDatetime(now)
    return vault
