"""Metadata: a small map that updates merge into (ENDPOINTS §0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from drover.api.v1.metadata_pb2 import MetadataPatch

MAX_PAIRS = 16


def merge(
    stored: MutableMapping[str, str], patch: MetadataPatch, *, empty_removes: bool = False
) -> None:
    """Merges `patch` into `stored`.

    With `empty_removes` an empty value removes its key, as environments do. Raises
    INVALID_ARGUMENT (`invalid_metadata`) when more than 16 pairs would be stored: the limits of
    single keys and values are written in the contract.
    """
    for key in patch.remove:
        stored.pop(key, None)
    for key, value in patch.set.items():
        if value or not empty_removes:
            stored[key] = value
        else:
            stored.pop(key, None)
    refuse_overflow(stored)


def refuse_overflow(stored: Mapping[str, str]) -> None:
    """Raises INVALID_ARGUMENT (`invalid_metadata`) for more pairs than an object may have."""
    if len(stored) > MAX_PAIRS:
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            f"metadata: at most {MAX_PAIRS} pairs are allowed, {len(stored)} would be stored",
            error_code="invalid_metadata",
        )
