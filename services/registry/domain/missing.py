"""What is answered for what is not there, or not in the caller's workspace: the same."""

from __future__ import annotations

from chassis.errors import DroverError, Reason


def no_agent(agent_id: str, version: int | None = None) -> DroverError:
    """NOT_FOUND for an agent, or for one version of it."""
    suffix = "" if version is None else f" at version {version}"
    return DroverError(Reason.NOT_FOUND, f"no agent {agent_id!r}{suffix}")


def no_environment(environment_id: str) -> DroverError:
    """ENVIRONMENT_NOT_FOUND (`environment_not_found`)."""
    return DroverError(Reason.ENVIRONMENT_NOT_FOUND, f"no environment {environment_id!r}")


def no_environment_key(key_id: str) -> DroverError:
    """NOT_FOUND for a key of an environment."""
    return DroverError(Reason.NOT_FOUND, f"no environment key {key_id!r}")


def no_api_key(key_id: str) -> DroverError:
    """NOT_FOUND for an API key."""
    return DroverError(Reason.NOT_FOUND, f"no API key {key_id!r}")


def name_taken(name: str) -> DroverError:
    """ALREADY_EXISTS for an environment's name."""
    return DroverError(Reason.ALREADY_EXISTS, f"name: an environment {name!r} exists already")
