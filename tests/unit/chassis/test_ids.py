from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

from chassis.ids import MonotonicIds, new_id


def test_id_has_the_shape_of_the_contract():
    assert re.fullmatch(r"sevt_01[1-9A-HJ-NP-Za-km-z]{22}", new_id("sevt"))


def test_ids_of_one_process_sort_in_the_order_in_which_they_were_made():
    made = [new_id("sevt") for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_stay_unique_and_ordered_when_the_clock_steps_back(monkeypatch):
    ids = MonotonicIds()
    before = ids("x")
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert before < ids("x") < ids("x")


def test_ids_of_a_later_process_sort_behind_those_of_an_earlier_one(monkeypatch):
    now = time.time_ns()
    earlier = MonotonicIds()("x")
    monkeypatch.setattr(time, "time_ns", lambda: now + 2_000_000_000)
    assert earlier < MonotonicIds()("x")


def test_threads_never_share_an_id():
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: new_id("x"), range(8_000)))
    assert len(set(made)) == len(made)
