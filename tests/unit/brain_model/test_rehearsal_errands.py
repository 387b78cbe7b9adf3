from __future__ import annotations

import pytest

from services.brain.model.rehearsal.errands import find_commands, find_errands, quoted


def _found(text: str) -> list[tuple[str, str]]:
    return [
        (e.call.name, e.call.input.get("command") or e.call.input["file_path"])
        for e in find_errands(text)
    ]


def _written(text: str) -> list[tuple[str, str]]:
    calls = [errand.call for errand in find_errands(text)]
    return [(c.input["file_path"], c.input["content"]) for c in calls if c.name == "write"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", []),
        ("run `echo hi`", [("bash", "echo hi")]),
        ("`a b` then `c`", [("bash", "a b"), ("bash", "c")]),
        ("run `./run.sh` please", [("bash", "./run.sh")]),
        ("```bash\necho 1\necho 2\n```\n", [("bash", "echo 1\necho 2")]),
        ("```python\nprint(1)\n```\n", []),
        ("Read /etc/os-release.", [("read", "/etc/os-release")]),
        ("read the file `notes.txt`", [("read", "/workspace/notes.txt")]),
        ("show me the contents of ./a/b.md", [("read", "/workspace/a/b.md")]),
        ("read this book, e.g. tomorrow", []),
        ("open https://example.com/x.txt", []),
        (
            "write hi to a.txt and then read it back",
            [("write", "/workspace/a.txt"), ("read", "/workspace/a.txt")],
        ),
        (
            "`date` and read a.txt, then `id`",
            [("bash", "date"), ("read", "/workspace/a.txt"), ("bash", "id")],
        ),
        ("read it back", []),
    ],
)
def test_errands_are_found_in_the_order_of_the_message(
    text: str, expected: list[tuple[str, str]]
) -> None:
    assert _found(text) == expected


@pytest.mark.parametrize(
    ("text", "path", "content"),
    [
        ('write "hello world" to notes.txt', "/workspace/notes.txt", "hello world\n"),
        ("Save hello into the file /data/x", "/data/x", "hello\n"),
        ("put the text 'a to b' in `deep/er.txt`", "/workspace/deep/er.txt", "a to b\n"),
        (
            "create a file called x.md with hello there, then stop",
            "/workspace/x.md",
            "hello there\n",
        ),
        ('Create `x.md` containing "1. one". Thanks.', "/workspace/x.md", "1. one\n"),
        ("write this to a.py:\n```\nprint(1)\n```\n", "/workspace/a.py", "print(1)\n"),
    ],
)
def test_what_is_written_is_what_the_message_says(text: str, path: str, content: str) -> None:
    assert _written(text) == [(path, content)]


def test_beside_a_table_only_real_commands_count() -> None:
    text = "group by `region`, save to `/out/report.md`, then run `wc -l /workspace/x.csv`"
    assert [e.call.input["command"] for e in find_commands(text)] == ["wc -l /workspace/x.csv"]


def test_quoted_output_is_cut_and_keeps_its_fence() -> None:
    assert quoted("") == "(no output)"
    assert quoted("x\n") == "```\nx\n```"
    assert quoted("```\nx\n```").startswith("````\n")
    assert "(1000 more characters)" in quoted("y" * 3_000)
