"""A call's arguments, as the model wrote them."""

from __future__ import annotations

import json
import math
from typing import Any

from chassis.errors import DroverError, Reason


def parsed(text: str) -> dict[str, Any]:
    """The object that the JSON text is. Raises INVALID_ARGUMENT for what cannot be sent on."""
    try:
        given = json.loads(text, parse_constant=_constant, parse_float=_number) if text else {}
        if "\\u" in text:  # half a character may have been written so, which no text can hold
            json.dumps(given, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise DroverError(Reason.INVALID_ARGUMENT, "input: must be the JSON text of an object")
    return given


def _constant(name: str) -> None:
    """Python reads constants that are no JSON."""
    raise ValueError(name)


def _number(digits: str) -> float:
    """A number, unless it is too large to be one here, and would be sent on as none."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(digits)
    return number
