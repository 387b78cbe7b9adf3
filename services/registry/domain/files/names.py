"""What files may be called, and what their names say of their kind (ENDPOINTS, Files)."""

from __future__ import annotations

import mimetypes
import re
import unicodedata
from typing import Final

from chassis.errors import DroverError, Reason

UNKNOWN_KIND: Final = "application/octet-stream"

_LONGEST_NAME: Final = 255  # characters
_LONGEST_PATH: Final = 1024  # bytes
_LONGEST_KIND: Final = 255
_FORBIDDEN: Final = frozenset('<>:"|?*\\/')
_WORD: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
# RFC 9110 §8.3.1; an upload's `multipart/form-data` has had its own quoting taken off before.
_KIND: Final = re.compile(
    rf'({_WORD}/{_WORD})((?:[ \t]*;[ \t]*{_WORD}=(?:{_WORD}|"[ !#-\[\]-~]*"))*)'
)
# What the standard library's own table lacks in some releases.
_MORE: Final = {
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".gz": "application/gzip",
    ".jsonl": "application/x-ndjson",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".toml": "application/toml",
    ".webp": "image/webp",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


class Kinds:
    """Media types by the ends of names. The same on every machine: no file of its is read."""

    def __init__(self) -> None:
        table = mimetypes.MimeTypes()
        self._by_suffix = {**table.types_map[False], **table.types_map[True], **_MORE}

    def of(self, filename: str) -> str:
        """What a name says; `UNKNOWN_KIND` for one that says nothing."""
        _, dot, suffix = filename.rpartition("/")[2].rpartition(".")
        return self._by_suffix.get(f".{suffix.lower()}", UNKNOWN_KIND) if dot else UNKNOWN_KIND


def checked_kind(kind: str) -> str:
    """A media type as it is kept: type and subtype in lower case. Raises INVALID_ARGUMENT."""
    found = _KIND.fullmatch(kind.strip())
    if found is None or len(kind) > _LONGEST_KIND:
        raise DroverError(
            Reason.INVALID_ARGUMENT, f"mime_type: must be a media type such as {UNKNOWN_KIND}"
        )
    return found[1].lower() + found[2]


def check_name(filename: str) -> None:
    """Raises INVALID_ARGUMENT for what an upload may not be called."""
    if not 1 <= len(filename) <= _LONGEST_NAME:
        raise _refused(f"must be 1 to {_LONGEST_NAME} characters long")
    if found := next((each for each in filename if each in _FORBIDDEN), None):
        raise _refused(f"must not contain {found}")
    _refuse_control(filename)
    if filename in {".", ".."}:
        raise _refused("must be the name of a file")


def check_path(path: str) -> None:
    """Raises INVALID_ARGUMENT for what is no path below a session's outputs directory."""
    if not 1 <= len(path.encode()) <= _LONGEST_PATH:
        raise _refused(f"must be 1 to {_LONGEST_PATH} bytes long")
    if any(part in {"", ".", ".."} for part in path.split("/")):
        raise _refused("must be a path below the outputs directory")
    _refuse_control(path)


def _refuse_control(text: str) -> None:
    if any(unicodedata.category(each) == "Cc" for each in text):
        raise _refused("must not contain control characters")


def _refused(why: str) -> DroverError:
    return DroverError(Reason.INVALID_ARGUMENT, f"filename: {why}")
