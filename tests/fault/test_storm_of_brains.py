"""A thousand turns with tools while brains are killed and stopped at random (P1 to P4)."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.doubles.seeds import chosen_seed
from tests.doubles.soak import limit, share
from tests.e2e.driving import history
from tests.e2e.stack import Stack, running_stack
from tests.fault.spree import Spree, check_commands, check_log, follow_the_plan
from tests.fault.vitals import Complaints

TURNS = 1000 if share(1) >= 1 else 80
BRAINS = ("brain-1", "brain-2", "brain-3")


@pytest.fixture(scope="module")
def spree_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Three brains, of which one may be stopped and one dead."""
    with running_stack(tmp_path_factory.mktemp("spree"), brains=len(BRAINS)) as stack:
        yield stack


@pytest.mark.timeout(limit(180))
def test_every_turn_ends_and_every_command_ran_once_or_is_reported_unknown(
    spree_stack: Stack,
) -> None:
    spree = Spree(spree_stack, chosen_seed(), TURNS, BRAINS)
    complaints = Complaints(spree_stack.data / "logs")
    spree_stack.model.default(follow_the_plan)
    counts: Counter[str] = Counter()
    with spree_stack.client() as client:
        asyncio.run(spree.run(client))
        for session in spree.sessions:
            log = history(client, session)
            check_log(log, spree.sent[session], spree.seen[session], spree.plans[session])
            marks = spree_stack.workspace(session) / "marks"
            left = marks.read_text().split() if marks.exists() else []
            counts += check_commands(log, left, spree.plans[session])
    assert complaints.found() == []
    told = {"turns": spree.finished, "seconds": round(spree.seconds, 1), **counts}
    sys.stdout.write(f"{told} {spree.deaths}\n")
    assert spree.is_enough
