"""A table found in a message: where it is, and what its columns are good for."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from services.brain.model.rehearsal.fences import find_fences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from services.brain.model.rehearsal.conversation import Conversation

_DELIMITERS = (",", ";", "\t")
_MIN_COLUMNS = 2
_MIN_LINES = 3
_MOST_GROUPS = 20

_FILE_NAME = re.compile(r"(?<![\w/.-])[\w-][\w.-]*\.(?:csv|tsv)\b", re.I)
_IDENTIFIER = re.compile(r"(?:^|[_\s])(?:id|no|nr|number|year|zip|code|phone)$|Id$|ID$", re.I)
_MONEY = re.compile(r"revenue|sales|amount|total|cost|value|profit|turnover", re.I)
_RATE = re.compile(r"price|rate|percent|ratio|share|average|mean|score|%|(?:^|_)age$", re.I)
_DATE = re.compile(r"\d{4}-\d{2}(?:-\d{2}.*)?")


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a header line.

    `text` is its content as sent; `rest` is the message without it. `additive` are the numeric
    columns whose sum means something (prices and rates have none), and `measure` the one of them
    most worth adding up, if any; `groups` have few distinct values.
    """

    name: str
    text: str
    rest: str
    delimiter: str
    header: tuple[str, ...]
    numeric: tuple[str, ...]
    additive: tuple[str, ...]
    measure: str | None
    groups: tuple[str, ...]
    month: str | None


def find_table(conversation: Conversation) -> Table | None:
    """The first table of the newest user message: a document, a fenced block, or bare lines."""
    named = _FILE_NAME.search(conversation.text)
    name = named[0] if named else "data.csv"
    for document in conversation.documents:
        titled = _FILE_NAME.search(document.title)
        table = _table(titled[0] if titled else name, document.text, conversation.text)
        if table is not None:
            return table
    whole = conversation.text
    for start, end, body in _candidates(whole):
        table = _table(name, body, "")
        if table is not None:
            return replace(table, rest=whole[:start] + whole[end:])
    return None


def _candidates(text: str) -> Iterator[tuple[int, int, str]]:
    """Parts of a message that may be a table: start, end and content."""
    for fence in find_fences(text):
        yield fence.start, fence.end, fence.body
    lines = text.splitlines(keepends=True)
    for delimiter in _DELIMITERS:
        longest: list[tuple[int, str]] = []
        shapes = [(at, line, _shape(line, delimiter)) for at, line in enumerate(lines)]
        for (width, _), run in groupby(shapes, key=lambda item: item[2]):
            members = [(at, line) for at, line, _ in run]
            if width >= _MIN_COLUMNS and len(members) > max(len(longest), _MIN_LINES - 1):
                longest = members
        if longest:
            body = "".join(line for _, line in longest)
            start = sum(map(len, lines[: longest[0][0]]))
            yield start, start + len(body), body


def _shape(line: str, delimiter: str) -> tuple[int, bool]:
    """How many cells a line has, and whether a space follows its delimiters, as in prose."""
    try:
        cells = next(csv.reader([line.strip("\r\n")], delimiter=delimiter), [])
    except csv.Error:
        cells = []
    return len(cells), any(cell.startswith(" ") for cell in cells[1:])


def _table(name: str, text: str, rest: str) -> Table | None:
    for delimiter in _DELIMITERS:
        try:
            rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
        except csv.Error:
            continue
        if len(rows) < _MIN_LINES or len(rows[0]) < _MIN_COLUMNS:
            continue
        if {len(row) for row in rows} != {len(rows[0])} or not _is_header(rows[0]):
            continue
        return _described(name, text.rstrip("\n") + "\n", rest, delimiter, rows)
    return None


def _is_header(cells: Sequence[str]) -> bool:
    names = [cell.strip() for cell in cells]
    return all(names) and len(set(names)) == len(names) and not any(map(_is_number, names))


def _described(
    name: str, text: str, rest: str, delimiter: str, rows: Sequence[Sequence[str]]
) -> Table:
    header = tuple(rows[0])
    columns = {title: [row[at].strip() for row in rows[1:]] for at, title in enumerate(header)}
    numeric = tuple(
        title
        for title, cells in columns.items()
        if any(cells)
        and all(_is_number(cell) for cell in cells if cell)
        and not _IDENTIFIER.search(title.strip())
    )
    additive = tuple(title for title in numeric if not _RATE.search(title))
    money = [title for title in additive if _MONEY.search(title)]
    months = [
        title
        for title, cells in columns.items()
        if all(_DATE.fullmatch(cell) for cell in cells) and len({c[:7] for c in cells}) > 1
    ]
    groups = tuple(
        title
        for title, cells in columns.items()
        if title not in numeric
        and not any(map(_DATE.fullmatch, cells))
        and 1 < len(set(cells)) <= min(_MOST_GROUPS, max(2, len(cells) // 2))
    )
    return Table(
        name=name,
        text=text,
        rest=rest,
        delimiter=delimiter,
        header=header,
        numeric=numeric,
        additive=additive,
        measure=next(reversed(money or additive), None),
        groups=groups[:2],
        month=months[0] if months else None,
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.strip().lower().lstrip("+-") not in {"nan", "inf", "infinity"}
