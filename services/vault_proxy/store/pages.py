"""The one query shape of every list: newest first, after a position."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, Table, tuple_

from services.vault_proxy.domain.vault_ports import Listing


def newest(
    query: Select[tuple[Any, ...]], table: Table, listing: Listing
) -> Select[tuple[Any, ...]]:
    """Narrows `query` over `table` to the part that `listing` asks for."""
    key = tuple_(table.c.created_at, table.c.id)
    if not listing.include_archived:
        query = query.where(table.c.archived_at.is_(None))
    if listing.after is not None:
        query = query.where(key < tuple_(listing.after.order, listing.after.item_id))
    return query.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(listing.limit)
