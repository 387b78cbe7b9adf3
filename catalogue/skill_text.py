"""What a SKILL.md says of its skill: the front matter at its head, read as the model is told it.

Front matter is YAML that anybody may have written. It is read as a stream of tokens of bounded
size: nothing of it is built but the two texts that count, aliases are not followed, and other
keys may hold what they like.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE: Final = "SKILL.md"
MAX_BYTES: Final = 16 * 1024
"""Of the front matter, with its two lines of dashes."""
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1024
"""Characters, SEMANTICS §12."""

_MAX_DEPTH: Final = 16
_FENCE: Final = "---"
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TAG: Final = re.compile(r"</?[A-Za-z!?][^<>]*>")
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Co"))
"""Of Unicode's categories: control and format characters, halves of others, and private ones.

Unassigned ones are not among them: they are those that are newer than this Python.
"""
_JOINERS: Final = "\u200c\u200d"
"""Persian and Indic words are spelt with them, and some emoji."""
_MAX_REASON: Final = 160
_NOTHING: Final = ("", "~", "null", "Null", "NULL")
_WANTED: Final = ("name", "description")


class BadSkillText(ValueError):  # noqa: N818  # it is told as it stands
    """It is no SKILL.md; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class SkillText:
    """What is told of a skill before it is read."""

    name: str
    description: str


def read_skill_text(head: bytes, folder: str) -> SkillText:
    """Reads the first `MAX_BYTES` of a SKILL.md, or all of it.

    `folder` is the name of a skill that gives itself none. Raises `BadSkillText`, and nothing else
    whatever the bytes are.
    """
    said = _scalars(_front_matter(head))
    named = said.get("name", "") not in _NOTHING
    name = said["name"] if named else folder
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        whose = "" if named else ", which is the folder's,"
        raise BadSkillText(
            f"the name {_shown(name)}{whose} must be 1 to {MAX_NAME} lower-case letters, digits "
            "and single hyphens between them"
        )
    description = " ".join(said.get("description", "").split())
    if description.strip(_JOINERS) in _NOTHING:
        raise BadSkillText("the front matter has no description")
    unseen = next(filter(_is_unseen, description), None)
    if unseen is not None:
        raise BadSkillText(
            f"the description has the character U+{ord(unseen):04X}, and must be of printable text "
            "and spaces"
        )
    if len(description) > MAX_DESCRIPTION:
        raise BadSkillText(
            f"the description has {len(description)} characters, at most {MAX_DESCRIPTION} are "
            "allowed"
        )
    if _TAG.search(description):
        raise BadSkillText("the description must have no XML tags")
    return SkillText(name, description)


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN and character not in _JOINERS


def _front_matter(head: bytes) -> str:
    begun = head.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    if not begun.startswith(b"---\n"):
        raise BadSkillText("it does not begin with front matter: a line of ---")
    end = re.search(rb"^---[ \t]*$", begun[4:MAX_BYTES], re.MULTILINE)
    if end is None:
        raise BadSkillText(f"its front matter has no end: a line of --- within {MAX_BYTES} bytes")
    try:
        return begun[4 : 4 + end.start()].decode()
    except UnicodeDecodeError:
        raise BadSkillText("its front matter is not UTF-8 text") from None


def _scalars(text: str) -> dict[str, str]:
    """The texts under the wanted keys at the top of a YAML mapping."""
    said: dict[str, str] = {}
    try:
        children = list(_children(text))
    except BadSkillText:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f" at line {mark.line + 2}"
        reason = str(error.problem)[:_MAX_REASON]
        raise BadSkillText(f"its front matter is not YAML: {reason}{where}") from None
    except yaml.YAMLError:
        raise BadSkillText("its front matter is not YAML: it has control characters") from None
    except Exception as error:  # what Python raises of numbers and escapes is told as it is
        raise BadSkillText(
            "its front matter is not YAML: an escape or a number in it is out of range"
        ) from error
    for key, value in zip(children[::2], children[1::2], strict=True):
        if key not in _WANTED:
            continue
        if value is None:
            raise BadSkillText(f"{key} must be text")
        if key in said:
            raise BadSkillText(f"{key} is there twice")
        said[key] = value
    return said


def _children(text: str) -> Iterator[str | None]:
    """The keys and values at the top, in turns; `None` for what is no text."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.NodeEvent):
            if depth == 0 and not isinstance(event, yaml.MappingStartEvent):
                raise BadSkillText("its front matter must be keys with values")
            if depth == 1:
                yield event.value if isinstance(event, yaml.ScalarEvent) else None
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise BadSkillText("its front matter is nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _shown(name: str) -> str:
    return ascii(name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…")
