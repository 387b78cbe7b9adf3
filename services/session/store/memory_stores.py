"""Statements on the memory stores that sessions are given, for life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert

from services.session.store.tables import memory_stores

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from services.session.domain.session import SessionDetails

MemoryStoreRow = tuple[str, str]
"""A session and a store."""

_INSERT = insert(memory_stores)


def add(connection: Connection, new: Iterable[MemoryStoreRow]) -> None:
    """Notes which sessions have which stores."""
    connection.execute(
        _INSERT, [{"session_id": session, "memory_store_id": store} for session, store in new]
    )


def stored(session_id: str, large: SessionDetails) -> list[MemoryStoreRow]:
    """The stores of a session as they are stored."""
    given = (resource.memory_store.memory_store_id for resource in large.resources)
    return [(session_id, store) for store in given if store]
