"""Errands found in a message: commands in backticks to run, files to read and to write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.brain.model.rehearsal.fences import find_fences, without_fences
from services.brain.model.rehearsal.script import Call, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from services.brain.model.rehearsal.conversation import Result
    from services.brain.model.rehearsal.fences import Fence
    from services.brain.model.rehearsal.script import Script

WORKSPACE = "/workspace"

_SHOWN = 2_000
_SEARCHED = 16_000
_LOOK_BACK = 60

_PATH = r"(?P<path>(?:~?/|\.{1,2}/)?[\w+-][\w.+-]*(?:/[\w.+-]+)*\.\w{1,8}|~?/[\w.+/-]*\w)"
_FILE_WORDS = r"(?:me\s+|the\s+|a\s+|new\s+|text\s+|contents?\s+of\s+|file\s+|named\s+|called\s+)*"

_SHELLS = frozenset({"bash", "sh", "shell", "zsh", "console"})
_SPAN = re.compile(r"`(?P<code>[^`\n]+)`")
_FILE_BEFORE = re.compile(
    r"\b(?:read|show|open|print|display|view|create|write|save|store|file|to|into|in|from|at|of|"
    r"named|called)\s+(?:me\s+|the\s+|a\s+|file\s+)*$",
    re.I,
)
_READ = re.compile(
    rf"\b(?:read|show|open|print|display|view)\s+{_FILE_WORDS}{_PATH}|\bread\s+it\s+back", re.I
)
_WRITE = re.compile(
    r"\b(?:write|save|put|store)\s+(?P<content>\"[^\"]*\"|'[^'\n]*'|“[^”]*”|[^\n]{1,2000}?)\s+"
    rf"(?:to|into|in)\s+{_FILE_WORDS}{_PATH}",
    re.I,
)
_CREATE = re.compile(
    rf"\bcreate\s+{_FILE_WORDS}{_PATH}\s+(?:with|containing|that\s+says|saying)\s+"
    r"(?P<content>\"[^\"]*\"|'[^'\n]*'|“[^”]*”|[^\n]{1,2000}?)(?=$|\.\s|\.$|,?\s+(?:and|then)\s|\n)",
    re.I,
)
_QUOTES = "\"'“”"
_CONTENT_LEAD = re.compile(r"^(?:the\s+)?(?:text|words?|lines?|contents?)\s+(?=[\"'“])", re.I)
_REFERRED = re.compile(r"^(?:this|it|the\s+following|the\s+block\s+below)$", re.I)
_TOGETHER = re.compile(r"\b(?:in\s+parallel|at\s+once|at\s+the\s+same\s+time|together)\b", re.I)


@dataclass(frozen=True, slots=True)
class Errand:
    """One thing to do, with the words to speak of it."""

    label: str
    call: Call


def find_errands(text: str) -> list[Errand]:
    """The errands of a message, in the order in which it names them.

    Beyond its fenced blocks only the first 16,000 characters are searched.
    """
    fences = find_fences(text)
    prose = without_fences(text, fences)[:_SEARCHED]
    spans = list(_SPAN.finditer(prose))
    found = [(fence.start, _run(fence.body.strip())) for fence in fences if fence.label in _SHELLS]
    found.extend(
        (span.start(), _run(span["code"].strip())) for span in spans if not _names_file(prose, span)
    )
    prose = _SPAN.sub(
        lambda span: f" {span['code']} " if _names_file(prose, span) else _blank(span), prose
    )
    found.extend(_files(prose, fences))
    return [errand for _, errand in sorted(found, key=lambda item: item[0])]


def find_commands(text: str) -> list[Errand]:
    """Only the commands of a message: spans of more than one word, and shell blocks.

    For messages that speak of columns and files in backticks as well.
    """
    return [
        errand
        for errand in find_errands(text)
        if errand.call.name == "bash" and " " in errand.call.input["command"]
    ]


def errands_script(errands: Sequence[Errand], *, together: bool) -> Script:
    """Do the errands and tell what came of each; `together` as one answer's parallel calls."""
    told: list[str] = []
    for batch in _batches(errands, together=together):
        labels = " and ".join(errand.label for errand in batch)
        results = yield Step(f"{labels}.", tuple(errand.call for errand in batch))
        told.extend(map(_told, batch, results))
    return "\n\n".join(told)


def wants_together(text: str) -> bool:
    """Whether the message asks for its commands to run in parallel."""
    return _TOGETHER.search(text) is not None


def in_workspace(path: str) -> str:
    """`path` as an absolute path, relative ones being beneath the workspace."""
    if path.startswith(("/", "~")):
        return path
    return f"{WORKSPACE}/{path.removeprefix('./')}"


def quoted(output: str) -> str:
    """Tool output as a fenced block, cut where it is long."""
    shown = output.rstrip("\n")
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}\n… ({len(shown) - _SHOWN} more characters)"
    fence = "````" if "```" in shown else "```"
    return f"{fence}\n{shown}\n{fence}" if shown else "(no output)"


def _files(prose: str, fences: Sequence[Fence]) -> Iterator[tuple[int, Errand]]:
    written: list[tuple[int, str]] = []
    for pattern in (_WRITE, _CREATE):
        for match in pattern.finditer(prose):
            content = _content(match, fences)
            path = in_workspace(match["path"])
            if content is not None:
                written.append((match.start(), path))
                yield match.start(), _write(path, content)
    for match in _READ.finditer(prose):
        path = match["path"]
        if path is None:
            earlier = [where for at, where in written if at < match.start()]
            if earlier:
                yield match.start(), _read(earlier[-1])
        elif path.lower() not in {"e.g", "i.e"}:
            yield match.start(), _read(in_workspace(path))


def _content(match: re.Match[str], fences: Sequence[Fence]) -> str | None:
    """What to write: the words given, or the next fenced block where the message refers to it."""
    given = _CONTENT_LEAD.sub("", match["content"].strip())
    if not _REFERRED.match(given):
        return given.strip(_QUOTES) + "\n"
    return next((fence.body for fence in fences if fence.start > match.start()), None)


def _names_file(prose: str, span: re.Match[str]) -> bool:
    return (
        re.fullmatch(_PATH, span["code"]) is not None
        and _FILE_BEFORE.search(prose, max(0, span.start() - _LOOK_BACK), span.start()) is not None
    )


def _batches(errands: Sequence[Errand], *, together: bool) -> Iterator[list[Errand]]:
    """Errands that may run side by side: all if asked for, else neighbouring reads."""
    batch: list[Errand] = []
    for errand in errands:
        reads = errand.call.name == "read" and all(e.call.name == "read" for e in batch)
        if batch and not together and not reads:
            yield batch
            batch = []
        batch.append(errand)
    if batch:
        yield batch


def _run(command: str) -> Errand:
    return Errand(f"running `{command}`", Call("bash", {"command": command}))


def _read(path: str) -> Errand:
    return Errand(f"reading {path}", Call("read", {"file_path": path}))


def _write(path: str, content: str) -> Errand:
    return Errand(f"writing {path}", Call("write", {"file_path": path, "content": content}))


def _told(errand: Errand, result: Result) -> str:
    outcome = "failed" if result.is_error else "gave"
    return f"{errand.label[:1].upper()}{errand.label[1:]} {outcome}:\n{quoted(result.text)}"


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])
