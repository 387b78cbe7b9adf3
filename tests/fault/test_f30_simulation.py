"""F30: simulations of the whole system with random crash, delay and reorder hold all invariants.

A failing seed is replayed by `python -m tests.simulation SEED`, which prints what happened. All
10,000 are run by `python -m tests.simulation 1 --count 10000`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.doubles.soak import limit, share
from tests.simulation import mutations
from tests.simulation.run import simulate

ENOUGH = 100
"""Seeds within which a mistake must be found, and everything must have come about."""
PARTS = 2 if share(1) >= 1 else 1
SEEDS = 2_000 if share(1) >= 1 else ENOUGH
"""All of them in a whole soak; CI runs what is enough."""
FIRST = 1
MISTAKEN = 97
"""From here on each of the mistakes is met soon; the rarest is met in one of a hundred."""

# What must have come about in every part of that size, or it has shown too little.
SEEN = (
    "dies",
    "stops",
    "pauses",
    "cut",
    "stall",
    "down",
    "sandbox dies",
    "checkpoint restored",
    "agent_tool_result",
    "agent_mcp_tool_result",
    "agent_thread_context_compacted",
    "user_custom_tool_result",
    "user_tool_result",
    "user_interrupt",
    "user_tool_confirmation",
    "session_status_rescheduled",
    "session_status_terminated",
    "session_updated",
    "system_message",
    "stop budget_reached",
    "stop end_turn",
    "stop refusal",
    "stop requires_action",
    "stop retries_exhausted",
)


@pytest.mark.timeout(limit(150))
@pytest.mark.parametrize("part", range(PARTS))
def test_every_simulation_holds_all_invariants(part: int) -> None:
    count = SEEDS // PARTS
    first = FIRST + part * count
    seen: Counter[str] = Counter()
    bad = []
    for seed in range(first, first + count):
        outcome = simulate(seed)
        seen += outcome.counts
        if outcome.faults:
            bad.append(str(outcome))
    assert not bad, "\n".join(bad[:5])
    assert [what for what in SEEN if not seen[what]] == []


def test_seed_goes_alike_in_every_process() -> None:
    """Whatever the addresses and the hashes of its strings are."""
    script = (
        "from tests.simulation.run import simulate\n"
        "print([simulate(seed).digest for seed in (3, 14, 15, 14)])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": hashes},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hashes in ("1", "2")
    }
    assert len(told) == 1


@pytest.mark.parametrize("name", mutations.ALL)
def test_mistake_is_found(name: str) -> None:
    with mutations.ALL[name]() as mistaken:
        seeds = range(MISTAKEN, MISTAKEN + 2 * ENOUGH)
        found = next((seed for seed in seeds if simulate(seed, mutations=mistaken).faults), None)
    assert found is not None
