"""How a call is refused."""

from __future__ import annotations

from chassis.errors import DroverError, Reason


def denied(text: str) -> DroverError:
    """What the proxy passes on to no engine, whoever asks."""
    return DroverError(Reason.PERMISSION_DENIED, f"the engine proxy refuses it: {text}")


def malformed(text: str) -> DroverError:
    """What is no call at all."""
    return DroverError(Reason.INVALID_ARGUMENT, f"the engine proxy does not understand: {text}")


def unknown(what: str, name: str) -> DroverError:
    """What is not there, or not for who asks: one answer for both, in the engine's own words."""
    return DroverError(Reason.NOT_FOUND, f"No such {what}: {name}")
