"""Which fields of a request were given: absent keeps, null clears, a value replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from google.protobuf.message import Message


def given(message: Message, mask: str = "update_mask") -> frozenset[str]:
    """Names of the fields that `message` speaks about.

    They are those that its field `mask` names, `null` ones included, or those that are set when it
    has no mask (ARCHITECTURE §3, presence). Raises INVALID_ARGUMENT for a mask that names something
    that is no field of the message.
    """
    if not message.HasField(mask):
        return frozenset(field.name for field, _ in message.ListFields())
    named: frozenset[str] = frozenset(getattr(message, mask).paths)
    if unknown := named.difference(message.DESCRIPTOR.fields_by_name):
        raise DroverError(Reason.INVALID_ARGUMENT, f"{mask}: no field {min(unknown)!r}")
    return named


def refuse_null(message: Message, named: frozenset[str], *fields: str) -> None:
    """Raises INVALID_ARGUMENT for a field that is named, has no value and cannot be cleared."""
    for field in fields:
        if field in named and not message.HasField(field):
            raise DroverError(Reason.INVALID_ARGUMENT, f"{field}: cannot be cleared")
