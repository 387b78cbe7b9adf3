"""What a directory and its store make of each other, without either."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.hands.domain.memory import paths, push, words
from services.hands.domain.memory.known import (
    Content,
    Fingerprint,
    Known,
    Odd,
    Refusal,
    Scan,
    StoreState,
)
from services.hands.domain.memory.notices import MOST, Notices
from services.hands.domain.memory.pull import Verdict, judge

SEEN = Fingerprint(1, 2, 3, 4)
OTHER = Fingerprint(1, 2, 3, 5)
PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(
    lambda names: "/" + "/".join(names)
)
TEXTS = st.sampled_from(["one", "two", "three"])


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def content(text: str) -> Content:
    return Content(digest(text), SEEN)


def clash(one: str, other: str) -> bool:
    """Whether two paths cannot be beside each other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def apart(files: dict[str, str]) -> dict[str, str]:
    """Files that can be beside each other."""
    kept: dict[str, str] = {}
    for path, text in files.items():
        if not any(clash(path, other) for other in kept):
            kept[path] = text
    return kept


FILES = st.dictionaries(PATHS, TEXTS).map(apart)


class Store:
    """What the real one refuses, it does."""

    def __init__(self, files: dict[str, str]) -> None:
        self.memories = {path: (f"mem{path}", digest(text)) for path, text in files.items()}

    def take(self, path: str) -> None:
        assert not [other for other in self.memories if clash(path, other)], path

    def apply(self, step: push.Step) -> None:
        if isinstance(step, push.Delete):
            assert self.memories.pop(step.path) == (step.known.memory_id, step.known.sha256)
        elif isinstance(step, push.Rename):
            memory = self.memories.pop(step.old)
            assert memory == (step.known.memory_id, step.known.sha256)
            self.take(step.path)
            self.memories[step.path] = memory
        elif isinstance(step, push.Update):
            memory_id, before = self.memories[step.path]
            assert before == step.known.sha256
            self.memories[step.path] = (memory_id, step.content.sha256)
        else:
            self.take(step.path)
            self.memories[step.path] = ("new", step.content.sha256)


@settings(max_examples=150, deadline=None)
@given(before=FILES, after=FILES)
def test_the_steps_lead_from_any_state_to_any_other_and_no_path_is_taken_too_early(
    before: dict[str, str], after: dict[str, str]
) -> None:
    store = Store(before)
    known = {path: Known(*memory) for path, memory in store.memories.items()}
    changed = {path: content(text) for path, text in after.items() if before.get(path) != text}
    for step in push.plan(known, changed, before.keys() - after.keys()):
        store.apply(step)
    assert {path: sha for path, (_, sha) in store.memories.items()} == {
        path: digest(text) for path, text in after.items()
    }


def test_a_file_that_only_moved_is_one_step() -> None:
    known = {"/a": Known("mem_1", digest("text"))}
    [step] = push.plan(known, {"/b": content("text")}, ["/a"])
    assert step == push.Rename("/b", "/a", known["/a"], content("text"))


def test_only_files_that_look_otherwise_are_read() -> None:
    state = StoreState("memstore_1", memories={"/a": Known("mem_1", "x", seen=SEEN)})
    state.memories["/unsure"] = Known("mem_2", "x")
    state.refused = {"/bad": Refusal(SEEN, lasting=True), "/mended": Refusal(SEEN, lasting=True)}
    scan = Scan({"/a": SEEN, "/unsure": SEEN, "/new": SEEN, "/bad": SEEN, "/mended": OTHER})
    assert push.touched(state, scan) == (["/unsure", "/new", "/mended"], [])


@pytest.mark.parametrize(
    "scan",
    [
        Scan(whole=False),
        Scan(unseen={"/d"}),
        Scan(odd={"/d": Odd("symbolic link", 1)}),
        Scan(odd={"/d/a": Odd("pipe", 1)}),
    ],
)
def test_what_could_not_be_looked_at_is_not_gone(scan: Scan) -> None:
    state = StoreState("memstore_1", memories={"/d/a": Known("mem_1", "x", seen=SEEN)})
    assert push.touched(state, scan) == ([], [])
    assert push.touched(state, Scan()) == ([], ["/d/a"])


def test_a_memory_that_was_never_brought_is_not_gone() -> None:
    state = StoreState("memstore_1", memories={"/a": Known("mem_1", "x", here=False)})
    assert push.touched(state, Scan()) == ([], [])


def test_what_changes_at_each_look_waits_and_not_for_ever() -> None:
    state = StoreState("memstore_1")
    for look in range(5):
        scan = Scan({"/a": Fingerprint(look, 0, 0, 0), "/b": SEEN})
        changed, gone = push.settled(state, scan, ["/a", "/b"], ["/c"])
        assert (changed, gone) == (([], []) if not look else (["/b"], ["/c"]))
        if look:  # what is done does not come again
            state.unsettled["/b"] = (SEEN, 1)
            state.unsettled["/c"] = (None, 1)
    assert push.settled(state, Scan({"/a": SEEN}), ["/a"], []) == (["/a"], [])


@pytest.mark.parametrize(
    ("base", "local", "sent", "verdict"),
    [
        (None, None, None, Verdict.BRING),
        (None, "new", None, Verdict.SAME),
        (None, "mine", None, Verdict.CLASH),
        ("old", "old", None, Verdict.BRING),
        ("old", "mine", None, Verdict.CLASH),
        ("old", "new", None, Verdict.SAME),
        ("old", None, None, Verdict.RESTORE),
        ("new", "mine", None, Verdict.OURS),
        ("new", None, None, Verdict.OURS),
        ("old", "mine", "new", Verdict.OURS),
        (None, "mine", "new", Verdict.OURS),
    ],
)
def test_the_store_stands_where_both_have_changed(
    base: str | None, local: str | None, sent: str | None, verdict: Verdict
) -> None:
    assert judge(base=base, local=local, remote="new", sent=sent) is verdict


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/a/b.md", ""),
        ("/über/日本語", ""),
        ("/" + "a/" * 19 + "a", ""),
        ("/" + "a/" * 20 + "a", "more than 20 levels"),
        ("/" + "é" * 512, "longer than 1,024 bytes"),
        ("/a\x7f", "U+007F"),
        ("/a\u2028b", "a line separator"),
        ("/\ud800", "not UTF-8"),
        ("/u\u0308", "Normalization Form C"),
    ],
)
def test_paths_that_no_memory_can_have_are_known_beforehand(path: str, why: str) -> None:
    found = paths.trouble(path)
    assert why in found
    assert bool(found) == bool(why)
    assert paths.shown(path).isprintable()


def test_no_more_notices_are_kept_than_are_of_use() -> None:
    notices = Notices()
    for number in range(MOST + 30):
        notices.add(words.Notice(str(number)), words.Notice(""))
    told = [notice.text for _ in range(3) for notice in notices.take(MOST // 2)]
    assert len(told) == MOST + 1
    assert f"{MOST + 60} more" in told[-1]
    assert notices.take(20) == []
