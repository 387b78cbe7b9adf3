"""What a brain is called."""

from __future__ import annotations

import pytest

from services.brain.settings import BrainSettings


def test_replicas_that_nobody_has_named_are_told_apart_by_their_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DROVER_BRAIN_NAME", raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "3f2a1b4c5d6e")
    assert BrainSettings().brain_name == "brain-3f2a1b4c5d6e"
    assert BrainSettings(brain_name="brain-1").brain_name == "brain-1"
