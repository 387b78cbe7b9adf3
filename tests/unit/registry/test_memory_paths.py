from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chassis.errors import DroverError
from services.registry.domain.memory.paths import (
    behind,
    below,
    children,
    refuse_bad_path,
    refuse_bad_prefix,
    self_and_ancestors,
)

# Few letters, so that paths often lie in one another, with those around the slash among them.
SEGMENTS = st.text("ab.0\u00e9\U0001f642", min_size=1, max_size=3).filter(
    lambda segment: segment not in {".", ".."}
)
PATHS = st.lists(SEGMENTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
DIRECTORIES = st.one_of(st.just("/"), PATHS.map(lambda path: f"{path}/"))
few = settings(max_examples=60, deadline=None)


def is_path(text: str) -> bool:
    try:
        refuse_bad_path(text)
    except DroverError:
        return False
    return True


@pytest.mark.parametrize(
    "path",
    [
        "/a",
        "/a b/\u00e9/\U0001f642.md",
        "/.hidden/...",
        "/-\\:*?",
        "/" + "/".join(["x"] * 20),
        "/" + "x" * 1023,
    ],
)
def test_a_path_may_be_anything_that_can_be_told_and_named(path: str) -> None:
    refuse_bad_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "a",
        "a/b",
        "/a/",
        "//a",
        "/a//b",
        "/./a",
        "/a/..",
        "/a\0",
        "/a\n",
        "/\x7f",
        "/a\u200b",  # a format character
        "/\u202egnp.exe",
        "/\ufeff",
        "/a\u2028b",
        "/a\u2029b",
        "/e\u0301",
        "/\u212b",
        "/" + "/".join(["x"] * 21),
        "/" + "x" * 1024,
        "/" + "\u00e9" * 512,
    ],
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(DroverError, match="path: "):
        refuse_bad_path(path)


@few
@given(st.text(max_size=20).map(lambda text: f"/{text}"))
def test_no_path_that_is_taken_means_another_place(path: str) -> None:
    if not is_path(path):
        return
    segments = path[1:].split("/")
    assert not {"", ".", ".."}.intersection(segments)
    assert unicodedata.normalize("NFC", path) == path
    assert path.isprintable() or not any(
        unicodedata.category(character).startswith(("Cc", "Cf", "Zl", "Zp")) for character in path
    )


@few
@given(PATHS, PATHS)
def test_paths_are_in_conflict_where_one_is_a_directory_of_the_other(one: str, other: str) -> None:
    inside = below(f"{one}/")
    in_conflict = other in self_and_ancestors(one) or inside.first <= other < inside.end
    assert in_conflict == (f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/"))


@few
@given(st.lists(PATHS, unique=True, max_size=12), DIRECTORIES, st.integers(1, 4))
def test_pages_of_children_are_the_children_in_order(
    paths: list[str], directory: str, limit: int
) -> None:
    paths.sort()
    inside = [path[len(directory) :] for path in paths if path.startswith(directory)]
    wanted = sorted(
        {directory + rest.partition("/")[0] + rest.partition("/")[1] for rest in inside}
    )
    part, seen = below(directory), []
    while True:
        rows = [path for path in paths if part.first <= path < part.end]
        page = children(rows, directory, limit)
        if not page:
            break
        seen += page
        part = behind(page[-1], below(directory))
    assert seen == wanted


@pytest.mark.parametrize("prefix", ["/", "/a/", "/a b/c/"])
def test_a_prefix_is_a_directory(prefix: str) -> None:
    refuse_bad_prefix(prefix)


@pytest.mark.parametrize("prefix", ["", "a/", "/a", "//", "/../", "/\0/", "/e\u0301/"])
def test_what_is_no_directory_is_refused_as_a_prefix(prefix: str) -> None:
    with pytest.raises(DroverError, match="path_prefix: "):
        refuse_bad_prefix(prefix)
