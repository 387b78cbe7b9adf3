"""Requests that may be repeated, among writes that share a transaction on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.session.store.engine import HeldElsewhereError
from storage import answers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlalchemy import Connection

    from drover.api.v1.request_key_pb2 import RequestKey
    from services.session.domain.ports import About
    from services.session.store.unit import Unit


def lane(key: RequestKey) -> str:
    """What those wait in that wait for the same request."""
    return f"request {key.id.hex()}"


def reserve(unit: Unit, abouts: Iterable[About], *, wait: bool) -> set[str]:
    """Keeps other replicas from the requests that were announced; answers those that they hold.

    To be done before any session is locked, so that nobody waits for anybody in a circle.
    """
    keys = {about.key.id: about.key for about in abouts if about.key and _needs_lock(about)}
    if not keys:
        return set()
    if wait:
        answers.lock(unit.connection, keys.values())
        return set()
    ours = answers.try_lock(unit.connection, keys.values())
    return {lane(key) for key in keys.values() if key.id not in ours}


def fetch(unit: Unit, keys: Iterable[RequestKey]) -> None:
    """Fetches what is kept under requests. To be done behind every lock."""
    if ids := {key.id for key in keys}:
        unit.known.answers |= dict.fromkeys(ids) | answers.load_each(unit.connection, ids)


def wait_for(connection: Connection, key: RequestKey) -> None:
    """Keeps other replicas from a request that was not announced, once none of them holds it."""
    answers.lock(connection, [key])


def take_if_free(connection: Connection, key: RequestKey) -> None:
    """As `wait_for`. Raises `HeldElsewhereError` while another replica holds it."""
    if not answers.try_lock(connection, [key]):
        raise HeldElsewhereError(lane(key))


def lanes(about: About) -> Collection[str]:
    """What a write needs for itself."""
    needed = [about.ref.session_id] if about.ref is not None else []
    return [*needed, lane(about.key)] if about.key else needed


def _needs_lock(about: About) -> bool:
    """Whether the lock on the session is not enough.

    Where the client named no key, requests are the same only if they go to the same session.
    """
    return about.ref is None or bool(about.key and about.key.fingerprint)
