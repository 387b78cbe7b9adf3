"""Places: what lies in whose way, and what it costs to know."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import DroverError
from services.session.domain.resources.places import Places

PARTS = st.sampled_from(["a", "b", "a-", "a.b", "é", "0"])
PATHS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


def in_the_way(one, other):
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


@given(st.lists(PATHS, max_size=12))
def test_a_place_is_taken_unless_another_is_in_its_way(paths):
    places, taken = Places(), []
    for path in paths:
        there = [one for one in taken if in_the_way(one, path)]
        if not there:
            places.take(path, f"<{path}>", "mount_path")
            taken.append(path)
            continue
        with pytest.raises(DroverError) as refused:
            places.take(path, "", "mount_path")
        assert any(f"<{one}>" in refused.value.message for one in there)


def test_deep_paths_take_no_more_memory_than_they_are_long():
    places = Places()
    paths = [f"/{'d/' * 500}{number}" for number in range(500)]
    paths += [f"/{number}{'/d' * 500}" for number in range(500)]
    tracemalloc.start()
    for path in paths:
        places.take(path, "another", "mount_path")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * sum(map(len, paths))
