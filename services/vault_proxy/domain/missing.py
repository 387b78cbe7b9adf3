"""What is answered for what is not there, or not in the caller's workspace: the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from drover.vault.v1.credential_pb2 import Credential


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


def refuse_variables(credentials: Iterable[Credential]) -> None:
    """Raises INVALID_ARGUMENT for an environment variable, which no worker would be given."""
    for credential in credentials:
        if credential.auth.HasField("environment_variable"):
            raise DroverError(
                Reason.INVALID_ARGUMENT,
                f"vault_ids: environment variables do not reach the workers of a self_hosted "
                f"environment: vault {credential.vault_id} has "
                f"{credential.auth.environment_variable.secret_name} ({credential.id}): name a "
                "vault without any, and give the variable to the workers themselves",
            )


def refuse_unusable(archived: Mapping[str, int | None], vault_ids: Sequence[str]) -> None:
    """Raises NOT_FOUND for an id that is not in `archived`, then ARCHIVED for one with a time."""
    for vault_id in vault_ids:
        if vault_id not in archived:
            raise no_vault(vault_id)
    for vault_id in vault_ids:
        if archived[vault_id] is not None:
            raise vault_archived(vault_id)
