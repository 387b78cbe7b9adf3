from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from services.hands.domain.fence import advance


def test_newer_generation_is_taken_and_kept() -> None:
    assert advance(0, 0) == 0
    assert advance(0, 3) == 3
    assert advance(3, 3) == 3
    assert advance(3, 7) == 7


@pytest.mark.parametrize("generation", [0, 1, 4])
def test_older_generation_and_no_generation_are_refused_once_a_newer_is_seen(
    generation: int,
) -> None:
    with pytest.raises(DroverError) as refused:
        advance(5, generation)
    assert refused.value.reason is Reason.LEASE_LOST
