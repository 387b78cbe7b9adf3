"""`python -m tests.simulation SEED` runs one seed and prints its trace; `--count N` runs many."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.run import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, help="the seed, or the first of many")
    parser.add_argument("--count", type=int, default=0, help="run so many seeds; print no trace")
    chosen = parser.parse_args()
    if not chosen.count:
        outcome = simulate(chosen.seed)
        for line in outcome.trace or ():
            print(line)  # noqa: T201
        print(outcome)  # noqa: T201
        return bool(outcome.faults)
    started, bad, events = time.perf_counter(), 0, 0
    counts: Counter[str] = Counter()
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        outcome = simulate(seed)
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
