"""A call's arguments, as the model wrote them."""

from __future__ import annotations

import json
from typing import Any

from chassis.errors import DroverError, Reason


def parsed(text: str) -> dict[str, Any]:
    """The object that the JSON text is. Raises INVALID_ARGUMENT."""
    try:
        given = json.loads(text, parse_constant=_refused) if text else {}
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise DroverError(Reason.INVALID_ARGUMENT, "input: must be the JSON text of an object")
    return given


def _refused(name: str) -> None:
    """Python reads constants that are no JSON."""
    raise ValueError(name)
