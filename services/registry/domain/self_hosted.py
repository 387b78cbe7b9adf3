"""Environments whose tools the operator's own workers run: Drover makes no sandbox for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

_DROVERS_OWN: Final = "drover."


def refuse_sandbox_metadata(keys: Iterable[str]) -> None:
    """Raises INVALID_ARGUMENT for metadata that says how Drover is to make the sandboxes."""
    for key in sorted(keys):
        if key.startswith(_DROVERS_OWN):
            raise DroverError(
                Reason.INVALID_ARGUMENT,
                f"metadata.{key}: is about sandboxes that Drover makes; "
                "the workers of a self_hosted environment have their own",
            )
