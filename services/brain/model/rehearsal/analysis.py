"""The errand with a table: put it in the workspace, look, compute, write a report, read it back."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from services.brain.model.rehearsal.errands import (
    WORKSPACE,
    errands_script,
    find_commands,
    quoted,
    wants_together,
)
from services.brain.model.rehearsal.script import NAME, Call, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.brain.model.rehearsal.conversation import Result
    from services.brain.model.rehearsal.script import Acting, Script
    from services.brain.model.rehearsal.table import Table

REPORT = "/mnt/session/outputs/report.md"

_FALLBACK_REPORT = f"{WORKSPACE}/report.md"
_REPORT_PATH = re.compile(r"(?<!\S)[`\"']?(?P<path>(?:/[\w.-]+)+\.md)\b")
_MISSING = re.compile(r"python3.*not found|not found.*python3|No such file or directory", re.I)
_FIRST = re.compile(r"^(?P<what>.+?) by (?P<group>.+?): (?P<top>[^,\n]+)", re.M)

_PYTHON = """\
python3 - <<'PY'
import collections, csv
def fmt(x): return f"{x:.2f}".rstrip("0").rstrip(".")
def num(text): return float(text) if text.strip() else None
rows = list(csv.DictReader(open(@PATH@, encoding="utf-8", newline=""), delimiter=@DELIMITER@))
print("rows:", len(rows))
for name in @NUMERIC@:
    v = [n for r in rows if (n := num(r[name])) is not None]
    total = f"sum {fmt(sum(v))}, " if name in @ADDITIVE@ else ""
    print(f"{name}: {total}mean {fmt(sum(v) / len(v))}, min {fmt(min(v))}, max {fmt(max(v))}")
measure = @MEASURE@
for group, cut in @GROUPS@:
    totals = collections.Counter()
    for r in rows:
        totals[r[group].strip()[:cut]] += 1 if measure is None else num(r[measure]) or 0
    whole = sum(totals.values()) or 1
    tops = ", ".join(f"{k} {fmt(t)} ({100 * t / whole:.0f} %)" for k, t in totals.most_common(5))
    print(f"{measure or 'rows'} by {'month' if cut else group}: {tops}")
PY"""

_AWK = """\
awk -F@DELIMITER@ 'NR == 1 { for (i = 1; i <= NF; i++) name[i] = $i; next }
NF { rows++; for (i = 1; i <= NF; i++) if (index(@COLUMNS@, "," i ",")) sum[i] += $i }
END { print "rows: " rows
  for (i in sum) printf "%s: sum %.2f, mean %.2f\\n", name[i], sum[i], sum[i] / rows }' @PATH@"""


def table_script(table: Table) -> Script:
    """Work through `table` with real commands; the answer is made from what they print.

    Commands in the message itself run before the report, which holds their output, unless they
    name the report.
    """
    path = f"{WORKSPACE}/{table.name}"
    (written,) = yield Step(
        f"I first put the table into {path}.",
        (Call("write", {"file_path": path, "content": table.text}),),
    )
    if written.is_error:
        return f"I could not write the table to {path}:\n{quoted(written.text)}"

    head, lines = yield Step(
        "I look at it: its first lines, and how many there are.",
        (
            Call("bash", {"command": f"head -n 5 {shlex.quote(path)}"}),
            Call("bash", {"command": f"wc -l {shlex.quote(path)}"}),
        ),
    )
    for look in (head, lines):
        if look.is_error:
            return f"I wrote {path}, but could not look at it:\n{quoted(look.text)}"

    figures = yield from _figures(table, path)
    if figures.is_error:
        return f"{path} is written, but computing over it failed:\n{quoted(figures.text)}"

    asked = _asked_path(table.rest)
    file_name = asked.rpartition("/")[2]
    commands = find_commands(table.rest)
    together = wants_together(table.rest)
    before = [errand for errand in commands if file_name not in errand.label]
    told = yield from errands_script(before, together=together)

    report = _report(table, figures.text, told)
    where, saved = yield from _saved(report, asked)
    if saved.is_error:
        return (
            f"I computed this over {path}:\n{quoted(figures.text)}\n\n"
            f"but could not write the report to {where}:\n{quoted(saved.text)}"
        )

    (read,) = yield Step(
        "I read the report back, to be sure of it.", (Call("read", {"file_path": where}),)
    )
    answer = _answer(table, figures.text, where, read)
    after = [errand for errand in commands if errand not in before]
    told = yield from errands_script(after, together=together)
    return f"{answer}\n\n{told}".rstrip()


def compute_command(table: Table, path: str) -> str:
    """The command that adds `table` up by the columns it has."""
    groups: list[tuple[str, int | None]] = [(group, None) for group in table.groups]
    if table.month is not None:
        groups.append((table.month, len("2026-01")))
    return _filled(
        _PYTHON,
        PATH=ascii(path),
        DELIMITER=ascii(table.delimiter),
        NUMERIC=ascii(table.numeric),
        ADDITIVE=ascii(table.additive),
        MEASURE=ascii(table.measure),
        GROUPS=ascii(groups),
    )


def plain_command(table: Table, path: str) -> str:
    """The same sums with awk, for a sandbox without Python; it does not read quoted cells."""
    columns = [str(table.header.index(name) + 1) for name in table.numeric]
    return _filled(
        _AWK,
        DELIMITER=shlex.quote(table.delimiter),
        COLUMNS=f'",{",".join(columns)},"',
        PATH=shlex.quote(path),
    )


def _figures(table: Table, path: str) -> Acting[Result]:
    (figures,) = yield Step(
        "I add it up by the columns it has.",
        (Call("bash", {"command": compute_command(table, path)}),),
    )
    if figures.is_error and _MISSING.search(figures.text):
        (figures,) = yield Step(
            "There is no Python here, so I add it up with awk.",
            (Call("bash", {"command": plain_command(table, path)}),),
        )
    return figures


def _saved(report: str, asked: str) -> Acting[tuple[str, Result]]:
    (saved,) = yield Step(
        f"I write what I found to {asked}.",
        (Call("write", {"file_path": asked, "content": report}),),
    )
    if not saved.is_error or asked == _FALLBACK_REPORT:
        return asked, saved
    (again,) = yield Step(
        f"That failed, so I write it to {_FALLBACK_REPORT}.",
        (Call("write", {"file_path": _FALLBACK_REPORT, "content": report}),),
    )
    return _FALLBACK_REPORT, again


def _asked_path(message: str) -> str:
    asked = _REPORT_PATH.search(message)
    return asked["path"] if asked else REPORT


def _report(table: Table, figures: str, told: str) -> str:
    columns = ", ".join(f"`{name}`" for name in table.header)
    listed = "\n".join(f"- {line}" for line in figures.strip().splitlines())
    findings = "\n".join(f"- {finding}" for finding in _findings(figures))
    return (
        f"# Report on {table.name}\n\nColumns: {columns}\n\n## Figures\n\n{listed}\n\n"
        + (f"## What stands out\n\n{findings}\n\n" if findings else "")
        + (f"## Commands that were asked for\n\n{told}\n\n" if told else "")
        + f"_{NAME}: made from the output of commands run in the sandbox._\n"
    )


def _findings(figures: str) -> Sequence[str]:
    """The leader of each grouping that the command printed."""
    return [
        f"Most {match['what']} by {match['group']}: {match['top'].strip()}."
        for match in _FIRST.finditer(figures)
    ]


def _answer(table: Table, figures: str, where: str, read: Result) -> str:
    findings = " ".join(_findings(figures))
    opening = f"I added up {table.name} with real commands. {findings}".rstrip()
    if read.is_error:
        return (
            f"{opening}\n\nThe figures:\n{quoted(figures)}\n\nThe report was written to {where}, "
            f"but reading it back failed:\n{quoted(read.text)}"
        )
    return f"{opening}\n\nThe report is in {where}; read back, it says:\n{quoted(read.text)}"


def _filled(template: str, **values: str) -> str:
    return re.sub(r"@([A-Z]+)@", lambda mark: values[mark[1]], template)
