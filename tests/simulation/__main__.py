"""`python -m tests.simulation SEED` runs one seed and prints its trace; `--count N` runs many."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.run import Outcome, simulate, untraced

if TYPE_CHECKING:
    from collections.abc import Iterator


def _each(seeds: range, jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(untraced, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(untraced, seeds, chunksize=20)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, help="the seed, or the first of many")
    parser.add_argument("--count", type=int, default=0, help="run so many seeds; print no trace")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run many seeds in")
    chosen = parser.parse_args()
    if not chosen.count:
        outcome = simulate(chosen.seed)
        for line in outcome.trace or ():
            print(line)  # noqa: T201
        print(outcome)  # noqa: T201
        return bool(outcome.faults)
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    started, bad, events = time.perf_counter(), 0, 0
    counts: Counter[str] = Counter()
    for outcome in _each(seeds, chosen.jobs):
        events += outcome.events
        counts += outcome.counts
        if outcome.faults:
            bad += 1
            print(outcome, flush=True)  # noqa: T201
    for what, count in sorted(counts.items()):
        print(f"{count:9} {what}")  # noqa: T201
    took = time.perf_counter() - started
    print(f"{chosen.count} seeds, {events} events, {bad} failed, {chosen.count / took:.1f}/s")  # noqa: T201
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
