"""The search tools: glob and grep.

One implementation on every machine, so that a pattern means the same everywhere: Python's regular
expressions, with POSIX classes such as `[[:alpha:]]`. They run in a child that is ended when a
pattern takes too long.
"""

from __future__ import annotations

import os
import re
import stat
from fnmatch import translate

from services.hands.runner import limits, paths
from services.hands.runner.failure import ToolFailure, ignoring, phrase
from services.hands.runner.output import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAGIC = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAX_ALTERNATIVES = 256
_POSIX = re.compile(r"\[:(\w+):\]")
_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "word": r"\w",
    "xdigit": "0-9A-Fa-f",
}
_SKIPPED = {".git", "node_modules"}
_BINARY_PROBE = 8 * 1024
_LINE_PIECE = 1024 * 1024  # a longer line is searched in pieces
NO_MATCHES = "no matches"


def glob(pattern: str, path: str | None = None) -> dict[str, Any]:
    """Paths that match, newest first."""
    if pattern.startswith("/"):
        raise ToolFailure(
            "glob: absolute pattern not permitted; pass a relative pattern (and optionally path)"
        )
    if ".." in pattern.split("/"):
        raise ToolFailure("glob: '..' is not permitted in the pattern")
    root = _root("glob", path)
    walk = _Walk()
    found: set[str] = set()
    for alternative in _alternatives(pattern):
        parts = [part for part in alternative.split("/") if part not in {"", "."}]
        found.update(walk.matches(root, parts))
    inside = [match for match in found if paths.within(os.path.realpath(match), root)]
    inside.sort(key=lambda match: (-_modified(match), match))
    return {"text": "\n".join(map(_shown, inside[: limits.GLOB_PATHS])) or NO_MATCHES}


def grep(pattern: str, path: str | None = None) -> dict[str, Any]:
    """Lines that match, as `path:line:text`."""
    try:
        regex = re.compile(_POSIX.sub(_posix_class, pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolFailure(f"grep: invalid regex: {error}") from error
    root = _root("grep", path)
    lines: list[str] = []
    budget = limits.GREP_OUTPUT
    for fd, file in _Walk().files(root):
        for line in _search(regex, fd, file):
            budget -= len(line.encode()) + 1
            if budget < 0:
                lines.append(f"[output truncated at {limits.GREP_OUTPUT} bytes]")
                return {"text": "\n".join(lines)}
            lines.append(line)
    return {"text": "\n".join(lines) or NO_MATCHES}


def _root(tool: str, path: str | None) -> str:
    try:
        root = paths.resolve(path or paths.WORKDIR)
        os.stat(root)  # noqa: PTH116
    except ToolFailure as error:
        raise ToolFailure(f"{tool}: {error}") from error
    except OSError as error:
        raise ToolFailure(f"{tool}: {path}: {phrase(error)}") from error
    return root


def _alternatives(pattern: str) -> list[str]:
    """The patterns that `{a,b}` stands for."""
    pending, done = [pattern], []
    while pending:
        current = pending.pop()
        braces = _BRACES.search(current)
        if braces is None:
            done.append(current)
        else:
            start, end = braces.span()
            choices = braces.group(1).split(",")
            pending += [current[:start] + choice + current[end:] for choice in choices]
        if len(pending) + len(done) > _MAX_ALTERNATIVES:
            raise ToolFailure(f"glob: the pattern has more than {_MAX_ALTERNATIVES} alternatives")
    return done


def _posix_class(match: re.Match[str]) -> str:
    return _CLASSES.get(match.group(1), match.group(0))


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime  # noqa: PTH116
    except OSError:
        return 0.0


def _shown(path: str) -> str:
    return decode(os.fsencode(path))


class _Walk:
    """One walk over a tree; links to directories are not followed on the way down.

    Whatever is swapped meanwhile, nothing outside the session's directories is looked at: each
    directory is opened by its canonical path, without following links, and a file from its
    directory.
    """

    def __init__(self) -> None:
        self._left = limits.WALK_ENTRIES
        # `**` and what follows it want the same directory one after the other.
        self._last: tuple[str, list[tuple[str, bool, bool]]] = ("", [])

    def _open(self, directory: str) -> int:
        """Raises `OSError`, also for a directory that leads out."""
        try:
            return paths.open_directory(paths.resolve(directory))
        except ToolFailure as failure:
            raise PermissionError(str(failure)) from failure

    def _entries(self, fd: int) -> list[tuple[str, bool, bool]]:
        """Names in a directory, in order; whether each is a directory, and a regular file."""
        found = []
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    with ignoring(OSError):  # it was removed meanwhile
                        is_directory = entry.is_dir(follow_symlinks=False)
                        is_file = entry.is_file(follow_symlinks=False)
                        found.append((entry.name, is_directory, is_file))
        except OSError:
            return []
        found.sort()
        found = found[: max(self._left, 0)]
        self._left -= len(found)
        return found

    def _listed(self, directory: str) -> list[tuple[str, bool, bool]]:
        if directory == self._last[0]:
            return self._last[1]
        try:
            fd = self._open(directory)
        except OSError:
            return []
        try:
            self._last = (directory, self._entries(fd))
        finally:
            os.close(fd)
        return self._last[1]

    def _is_there(self, directory: str, name: str) -> bool:
        try:
            fd = self._open(directory)
        except OSError:
            return False
        try:
            os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def matches(self, directory: str, parts: list[str]) -> Iterator[str]:
        """Paths below `directory` that the parts of a pattern match."""
        if not parts:
            return
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self._deep(directory, rest)
        elif _MAGIC.search(part):
            regex = re.compile(translate(part))
            for name, _, _ in self._listed(directory):
                if regex.match(name):
                    yield from self._matched(f"{directory}/{name}", rest)
        elif self._is_there(directory, part):
            yield from self._matched(f"{directory}/{part}", rest)

    def _matched(self, path: str, rest: list[str]) -> Iterator[str]:
        if rest:
            yield from self.matches(path, rest)  # of what is no directory there are none
        else:
            yield path

    def _deep(self, directory: str, rest: list[str]) -> Iterator[str]:
        pending = [directory]
        while pending:
            current = pending.pop()
            yield from self.matches(current, rest)
            for name, is_directory, _ in self._listed(current):
                if not rest:
                    yield f"{current}/{name}"
                if is_directory:
                    pending.append(f"{current}/{name}")

    def files(self, root: str) -> Iterator[tuple[int, str]]:
        """Regular files below `root`, or `root` itself, in the order of their names.

        Each is an open descriptor, which the caller closes, and its path.
        """
        pending = [root]
        while pending:
            current = pending.pop()
            try:
                directory = self._open(current)
            except NotADirectoryError:
                with ignoring(OSError):
                    yield paths.open_beneath(current, _FILE), current
                continue
            except OSError:
                continue
            try:
                below = []
                for name, is_directory, is_file in self._entries(directory):
                    if is_directory and name not in _SKIPPED:
                        below.append(f"{current}/{name}")
                    elif is_file:
                        with ignoring(OSError):  # removed, swapped, or not ours to read
                            yield os.open(name, _FILE, dir_fd=directory), f"{current}/{name}"
                pending += reversed(below)
            finally:
                os.close(directory)


def _search(regex: re.Pattern[str], fd: int, path: str) -> Iterator[str]:
    """Lines of the file that is open at `fd`, which is closed, that match."""
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return
        if b"\0" in file.read(_BINARY_PROBE):
            return
        file.seek(0)
        number, prefix, complete = 0, _shown(path), True
        while piece := file.readline(_LINE_PIECE):
            number += complete
            complete = piece.endswith(b"\n")
            text = decode(piece).rstrip("\r\n")
            if regex.search(text):
                yield f"{prefix}:{number}:{text[: limits.GREP_LINE]}"
