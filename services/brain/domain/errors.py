"""Errors beside the turn, which goes on: each is told once while the session runs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from drover.event.v1.session_event_pb2 import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from services.brain.domain.state import State


def key(error: SessionError) -> bytes:
    """What two errors have in common that say the same."""
    said = SessionError()
    said.CopyFrom(error)
    said.ClearField("retry_status")
    return hashlib.sha256(said.SerializeToString(deterministic=True)).digest()


def untold(state: State, errors: Iterable[SessionError]) -> Iterator[SessionError]:
    """Those of `errors` that the session has not been told of since it last began to run."""
    told = set(state.told)
    for error in errors:
        name = key(error)
        if name not in told:
            told.add(name)
            yield error
