"""What is answered for what is not there, or not in the caller's workspace: the same."""

from __future__ import annotations

from chassis.errors import DroverError, Reason


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
