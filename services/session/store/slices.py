"""Statements that read slices of a log or inbox: they cost what the slice does, not the log.

The planner must not decide that. Positions have no gaps, so the range of a query without a filter
is cut to what it can answer; and each type is read by its own part of a union, from an index in the
order of the log, so that the parts are merged and no more of them is read than is asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    column,
    func,
    literal,
    literal_column,
    or_,
    select,
    union_all,
)

from drover.event.v1 import event_pb2
from services.session.domain.event import InputClass
from services.session.domain.ports import InboxEntry
from services.session.store.tables import events, inbox
from storage.prepared import Prepared, PreparedAmong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection
    from sqlalchemy.sql import ClauseElement

    from services.session.domain.ports import InboxQuery, LogQuery

    Row = Sequence[Any]

SMALL: Final = 16 * 1024
"""Bodies up to so many bytes come with the positions; larger ones are fetched once it is known that
they fit the page."""

_SIZE = func.length(events.c.body)
_BODY = case((literal_column(str(SMALL)) >= _SIZE, events.c.body))
_BODIES = PreparedAmong(
    lambda seqs: select(events.c.seq, events.c.body).where(
        events.c.session_id == bindparam("session"), events.c.seq.in_(seqs)
    )
)
_FETCHED: Final = 64
"""How many large bodies are asked for at once."""

# What was taken from the inbox since has its body in the log.
_MOVED = inbox.outerjoin(
    events, and_(events.c.session_id == inbox.c.session_id, events.c.seq == inbox.c.taken_seq)
)
_INBOX_BODY = func.coalesce(events.c.body, inbox.c.body)
_INBOX_SIZE = func.length(_INBOX_BODY)
_INBOX_BODIES = PreparedAmong(
    lambda places: (
        select(inbox.c.position, _INBOX_BODY)
        .select_from(_MOVED)
        .where(inbox.c.session_id == bindparam("session"), inbox.c.position.in_(places))
    )
)


def _earlier() -> Select[Any]:
    """How many positions are stamped before a time.

    Stamps never decrease with the position: it strides ahead for as long as they are earlier, each
    time half as far, and so looks at one a doubling of the log, all in one statement.
    """
    start = select(literal(0, BigInteger).label("at"), bindparam("stride", type_=BigInteger))
    walk = start.cte("walk", recursive=True)
    at, stride = walk.c
    there = (
        select(events.c.processed_at)
        .where(
            events.c.session_id == bindparam("session"),
            events.c.seq == at + stride,
            events.c.seq <= bindparam("head"),
        )
        .scalar_subquery()
    )
    ahead = case((there < bindparam("micros"), at + stride), else_=at)
    walk = walk.union_all(select(ahead, stride // 2).where(stride > 0))
    return select(walk.c.at).where(walk.c[1] == 0)


_EARLIER = Prepared(_earlier())


def page(connection: Connection, session_id: str, query: LogQuery) -> tuple[list[bytes], bool]:
    """A slice of the log as it is stored, and whether there is more of it."""
    rows = _rows(connection, session_id, query)
    kept = rows[: fitting([row[1] for row in rows], query.limit, query.max_bytes)]
    return _whole(connection, session_id, kept, _BODIES), len(rows) > len(kept)


def positions(connection: Connection, session_id: str, query: LogQuery) -> list[int]:
    """The positions of a slice, however large its events are."""
    return [row[0] for row in _rows(connection, session_id, query)[: query.limit]]


def first_at(connection: Connection, session_id: str, head: int, micros: int) -> int:
    """The first position that is stamped at or after a time; the one behind the head if none is."""
    parameters = {"session": session_id, "head": head, "micros": micros}
    stride = 1 << head.bit_length() >> 1
    [row] = _EARLIER.execute(connection, parameters | {"stride": stride})
    return int(row[0]) + 1


def inbox_page(
    connection: Connection, session_id: str, query: InboxQuery
) -> tuple[list[InboxEntry], bool]:
    """A slice of what waited when the log's head was where the query says."""
    parameters = {"session": session_id, "after": query.after, "upto": query.upto}
    parameters |= {"head": query.head, "most": query.limit + 1}
    parameters |= {f"type_{place}": one for place, one in enumerate(query.types)}
    statement = _inbox_statement(types=len(query.types), descending=query.descending)
    rows = statement.execute(connection, parameters)
    kept = rows[: fitting([row[1] for row in rows], query.limit, query.max_bytes)]
    bodies = _whole(connection, session_id, kept, _INBOX_BODIES)
    entries = [
        InboxEntry(row[0], InputClass(row[3]), row[4], event_pb2.Event.FromString(body), row[5])
        for row, body in zip(kept, bodies, strict=True)
    ]
    return entries, len(rows) > len(kept)


def fitting(sizes: Sequence[int], limit: int, max_bytes: int) -> int:
    """How many of the first ones fit the limits: at least one, if there is any."""
    used = 0
    for place, size in enumerate(sizes):
        used += size
        if place and (place == limit or used > max_bytes):
            return place
    return len(sizes)


def _rows(connection: Connection, session_id: str, query: LogQuery) -> Sequence[Row]:
    """Position, size and, if it is small, the body of one event more than the limit."""
    after, upto, most = query.after, query.upto, query.limit + 1
    if not query.types and not query.threads:
        after, upto = _nearest(query, most)
    if after >= upto:
        return []
    statement = _statement(
        connection.dialect.name,
        types=len(query.types),
        threads=len(query.threads),
        descending=query.descending,
    )
    parameters = {"session": session_id, "after": after, "upto": upto, "most": most}
    parameters |= {f"type_{place}": one for place, one in enumerate(query.types)}
    parameters |= {f"thread_{place}": one for place, one in enumerate(query.threads)}
    if not query.exact:
        # As a rule most events are the primary thread's, and nearly all that are near will do.
        near, far = _nearest(query, 2 * most)
        rows = statement.execute(connection, parameters | {"after": near, "upto": far})
        if len(rows) == most or (near, far) == (after, upto):
            return rows
    return statement.execute(connection, parameters)


def _nearest(query: LogQuery, most: int) -> tuple[int, int]:
    """The bounds of so many positions at the end of the query's range where it begins."""
    if query.descending:
        return max(query.after, query.upto - most), query.upto
    return query.after, min(query.upto, query.after + most)


def _whole(
    connection: Connection, session_id: str, rows: Sequence[Row], fetch: PreparedAmong
) -> list[bytes]:
    """The bodies of rows of a place, a size and, if it is small, the body."""
    bodies = {row[0]: row[2] for row in rows}
    large = [place for place, body in bodies.items() if body is None]
    for start in range(0, len(large), _FETCHED):
        chosen = large[start : start + _FETCHED]
        found = fetch.execute(connection, {"session": session_id}, chosen)
        bodies |= {row[0]: row[1] for row in found}
    return list(bodies.values())


@cache
def _statement(dialect: str, *, types: int, threads: int, descending: bool) -> Prepared:
    """The statement for so many types and threads; one thread is a child, which has an index."""
    of = events.c
    where = [of.session_id == bindparam("session")]
    where += [of.seq > bindparam("after"), of.seq <= bindparam("upto")]
    if threads:
        named: list[Any] = [bindparam(f"thread_{place}") for place in range(threads)]
        where.append(of.thread_id.in_(named) if threads > 1 else of.thread_id == named[0])
    wanted: list[Any] = [bindparam(f"type_{place}") for place in range(types)]
    if threads == 1:
        where.append(of.thread_id != literal_column("''"))  # which the index says too
        if wanted:
            where.append(of.type.in_(wanted))
            wanted = []
    part = select(of.seq, _SIZE.label("size"), _BODY.label("body")).where(*where)
    if len(wanted) <= 1:
        return Prepared(
            _ordered(part.where(*(of.type == one for one in wanted)), descending=descending)
        )
    parts: list[Any] = [part.where(of.type == one) for one in wanted]
    if dialect == "postgresql":
        # Without a limit of their own it would read each of them to its end, and sort.
        parts = [_ordered(one, descending=descending) for one in parts]
    return Prepared(_ordered_union(parts, descending=descending))


def _ordered(statement: Select[Any], *, descending: bool) -> Select[Any]:
    order = events.c.seq.desc() if descending else events.c.seq
    return statement.order_by(order).limit(bindparam("most", type_=Integer))


def _ordered_union(parts: Sequence[Any], *, descending: bool) -> ClauseElement:
    seq = column("seq", Integer)
    whole = union_all(*parts).order_by(seq.desc() if descending else seq)
    return whole.limit(bindparam("most", type_=Integer))


@cache
def _inbox_statement(*, types: int, descending: bool) -> Prepared:
    of = inbox.c
    small = case((literal_column(str(SMALL)) >= _INBOX_SIZE, _INBOX_BODY))
    statement = (
        select(of.position, _INBOX_SIZE, small, of.kind, of.type, of.taken_seq)
        .select_from(_MOVED)
        .where(
            of.session_id == bindparam("session"),
            of.position > bindparam("after"),
            of.position <= bindparam("upto"),
            or_(of.taken_seq.is_(None), of.taken_seq > bindparam("head")),
        )
    )
    if types:
        statement = statement.where(of.type.in_([bindparam(f"type_{n}") for n in range(types)]))
    order = of.position.desc() if descending else of.position
    return Prepared(statement.order_by(order).limit(bindparam("most", type_=Integer)))
