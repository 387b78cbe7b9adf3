"""What is answered for what is not there, or not in the caller's workspace: the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def no_vault(vault_id: str) -> DroverError:
    """NOT_FOUND for a vault."""
    return DroverError(Reason.NOT_FOUND, f"no vault {vault_id!r}")


def no_credential(credential_id: str) -> DroverError:
    """NOT_FOUND for a credential of a vault."""
    return DroverError(Reason.NOT_FOUND, f"no credential {credential_id!r}")


def vault_archived(vault_id: str) -> DroverError:
    """ARCHIVED for a vault."""
    return DroverError(Reason.ARCHIVED, f"vault {vault_id} is archived")


def credential_archived(credential_id: str) -> DroverError:
    """ARCHIVED for a credential."""
    return DroverError(Reason.ARCHIVED, f"credential {credential_id} is archived")


def refuse_unusable(archived: Mapping[str, int | None], vault_ids: Sequence[str]) -> None:
    """Raises NOT_FOUND for an id that is not in `archived`, then ARCHIVED for one with a time."""
    for vault_id in vault_ids:
        if vault_id not in archived:
            raise no_vault(vault_id)
    for vault_id in vault_ids:
        if archived[vault_id] is not None:
            raise vault_archived(vault_id)
