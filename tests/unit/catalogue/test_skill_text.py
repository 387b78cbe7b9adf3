from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalogue.skill_text import MAX_BYTES, BadSkillText, SkillText, read_skill_text


def refusal(text: str | bytes, folder: str = "sums") -> str:
    head = text.encode() if isinstance(text, str) else text
    with pytest.raises(BadSkillText) as refused:
        read_skill_text(head, folder)
    return str(refused.value)


def front(*lines: str) -> str:
    return "\n".join(("---", *lines, "---", "", "Body."))


@pytest.mark.parametrize(
    ("lines", "description"),
    [
        (("description: Adds up.",), "Adds up."),
        (("description: >", "  Adds", "  up."), "Adds up."),
        (('description: "Adds: up"',), "Adds: up"),
        (("description: 12",), "12"),
        (("description: a < b and c > d",), "a < b and c > d"),
        (("description: Größen", "metadata: {name: x, description: [y]}"), "Größen"),
        (("? [name, {description: x}]", ": name", "description: last"), "last"),
    ],
)
def test_the_description_is_text_at_the_top_on_one_line(
    lines: tuple[str, ...], description: str
) -> None:
    head = front("name: add-up-2", "allowed-tools: [Bash]", *lines).encode()
    for written in (head, b"\xef\xbb\xbf" + head, head.replace(b"\n", b"\r\n")):
        assert read_skill_text(written, "sums") == SkillText("add-up-2", description)


@pytest.mark.parametrize("name", [(), ("name:",), ("name: ~",), ('name: ""',)])
def test_a_skill_without_a_name_has_its_folders(name: tuple[str, ...]) -> None:
    head = front("description: Adds up.", *name).encode()
    assert read_skill_text(head, "sums").name == "sums"
    assert "which is the folder's" in refusal(head, "My Sums")


@pytest.mark.parametrize("name", ["Sums", "a_b", "-a", "a--b", "größe", "a b", "x" * 65, "a/b"])
def test_names_are_small_letters_digits_and_hyphens(name: str) -> None:
    assert "must be 1 to 64 lower-case letters" in refusal(front(f"name: {name}", "description: d"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# Sums", "does not begin with front matter"),
        ("---\nname: sums\n", "has no end"),
        (front("description: d", "# " + "x" * MAX_BYTES), "has no end"),
        (front("name: sums"), "no description"),
        (front("description: ''"), "no description"),
        (front("description: null"), "no description"),
        (front("description: " + "x" * 1025), "1025 characters, at most 1024"),
        (front("description: Adds <b>up</b>."), "no XML tags"),
        (front("description: [Adds, up]"), "description must be text"),
        (front("description: d", "name: {a: b}"), "name must be text"),
        (front("a: &x Adds", "description: *x"), "description must be text"),
        (front("description: d", "name: a", "name: b"), "name is there twice"),
        (front("- description: d"), "keys with values"),
        (front("Adds up."), "keys with values"),
        (front("description: use it: often"), "mapping values are not allowed here at line 2"),
        (front("description: d", "a: [" + "[" * 9000), "nested too deeply"),
        (front("description: \x07"), "control characters"),
        (front("description: d").encode("utf-16"), "does not begin with front matter"),
        (b"---\ndescription: \xff\n---\n", "not UTF-8"),
        *[
            (front(line), "front matter is not YAML")
            for line in (
                r'description: "\Uffffffff"',
                r'description: "\U00110000"',
                r'other: "\Uffffffff"',
                "%YAML " + "9" * 5000 + ".1",
                "description: !<%ff> d",
                "description: !" + "x" * 9000 + "!y d",
            )
        ],
        *[
            (front(f'description: "Adds {written} up."'), f"the character U+{code}")
            for written, code in (
                (r"\ud800", "D800"),
                (r"\ude00\ud83d", "DE00"),
                (r"\0", "0000"),
                (r"\e[2J", "001B"),
                ("\N{RIGHT-TO-LEFT OVERRIDE}", "202E"),
                ("\N{ZERO WIDTH SPACE}", "200B"),
                ("\N{LANGUAGE TAG}", "E0001"),
                ("\ue000", "E000"),
            )
        ],
        (front('description: "\u200b"'), "the character U+200B"),
        (front('description: "\u200d\u200c"'), "no description"),
        (front(r'name: "\ud800"', "description: d"), "'\\ud800' must be"),
    ],
)
def test_what_is_no_front_matter_is_refused_with_a_reason(text: str | bytes, reason: str) -> None:
    assert reason in refusal(text)


@pytest.mark.parametrize("text", ["می\u200cکنم", "क्\u200dष", "👩\u200d🔬 counts"])
def test_descriptions_are_spelt_as_their_language_is(text: str) -> None:
    assert read_skill_text(front(f"description: {text}").encode(), "sums").description == text


YAML = st.text("-[]{}:,&*!|>'\"?%#@ \n\tab<\\Uuxfe0d8", max_size=60)


@settings(deadline=None)
@given(st.binary(max_size=60) | (YAML | st.text(max_size=30)).map(str.encode), st.text(max_size=9))
@example(rb"\Uffffffff", "sums")
@example(rb"\ud800", "\ud800")
def test_whatever_stands_there_is_read_or_refused(written: bytes, folder: str) -> None:
    lines = (written, b"description: d\n" + written, b'description: "' + written + b'"')
    for head in (written, *(b"---\n" + line + b"\n---\n" for line in lines)):
        told = said(head, folder)
        assert 0 < len(told.encode()) < 5000
        assert not {"\n", "\0", "\x1b", "\u202e"} & set(told)


def said(head: bytes, folder: str) -> str:
    """The description, or why there is none."""
    try:
        return read_skill_text(head, folder).description
    except BadSkillText as refused:
        return str(refused)
