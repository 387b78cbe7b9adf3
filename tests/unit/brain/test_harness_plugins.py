"""Harnesses of the operator's own: found by entry point, refused with a reason."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

import pytest

from catalogue.models import load as load_models
from chassis.errors import CannotStartError
from drover.agent.v1.agent_pb2 import SessionAgent
from drover.session.v1.lease_pb2 import InputWaiting
from services.brain.domain.decision import GiveUp, Interrupt, Limits, Mine, RunTools
from services.brain.harness import plugins
from services.brain.harness.minimal import MinimalHarness
from services.brain.harness.port import Setup
from services.brain.harness.registry import HARNESS_KEY, HarnessRegistry, assemble
from services.brain.harness.standard import StandardHarness
from tests.unit.brain.logs import session
from tests.unit.brain.test_decision import Log

SETUP = Setup(models=load_models(None), max_output_tokens=1_000, limits=Limits())


class Shepherd(MinimalHarness):
    name = "shepherd"
    fold = "shepherd-1"


class Nameless(MinimalHarness):
    name = ""


def broken(_setup: Setup) -> object:
    msg = "no wool\nand more"
    raise OSError(msg)


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("their_harnesses")
    for value in (Shepherd, Nameless, broken):
        setattr(module, value.__name__, value)
    module.nothing = lambda _setup: object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_harnesses", module)


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, f"their_harnesses:{value}", plugins.GROUP)


def test_an_entry_point_gives_a_harness_made_with_the_brains_setup() -> None:
    (harness,) = plugins.load([point("shepherd", "Shepherd")], SETUP, ["standard"])
    assert isinstance(harness, Shepherd)
    assert harness.name == "shepherd"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("shepherd", "Absent", "cannot be loaded: AttributeError"),
        ("shepherd", "broken", "cannot be loaded: OSError: no wool"),
        ("shepherd", "nothing", "has no begin, project, decide, request"),
        ("nameless", "Nameless", "has no text as its name"),
        ("goatherd", "Shepherd", "calls itself 'shepherd'"),
        ("standard", "Shepherd", "there is another harness of that name"),
    ],
)
def test_one_that_is_no_harness_keeps_the_brain_from_starting_and_is_named(
    name: str, value: str, told: str
) -> None:
    with pytest.raises(CannotStartError) as caught:
        plugins.load([point(name, value)], SETUP, ["standard", "minimal"])
    message = str(caught.value)
    assert told in message
    assert f"'{name}' (their_harnesses:{value}" in message
    assert "\n" not in message


def test_two_of_one_name_are_one_too_many() -> None:
    twice = [point("shepherd", "Shepherd")] * 2
    with pytest.raises(CannotStartError, match="another harness of that name"):
        plugins.load(twice, SETUP, [])


def test_a_distribution_that_is_installed_is_found_and_chosen_by_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "herding-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: herding\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        f"[{plugins.GROUP}]\nshepherd = their_harnesses:Shepherd\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [found.name for found in entry_points(group=plugins.GROUP)] == ["shepherd"]
    harnesses = assemble(SETUP)
    asked = SessionAgent(metadata={HARNESS_KEY: "shepherd"})
    assert harnesses.choose(asked).fold == Shepherd.fold
    assert harnesses.choose(SessionAgent()).name == "standard"
    assert harnesses.choose(SessionAgent(metadata={HARNESS_KEY: "minimal"})).name == "minimal"


def test_a_missing_harness_is_told_of_also_in_a_session_with_a_budget() -> None:
    of = session(model_id="claude-opus-4-6")
    of.agent.metadata[HARNESS_KEY] = "lost"
    of.budget.max_list_cost.amount = "100"
    harness = assemble(replace(SETUP, limits=Limits(prices=SETUP.models))).choose(of.agent)
    assert harness.name == "lost"
    decision = harness.decide(harness.begin(of), InputWaiting(message=True), Mine())
    assert isinstance(decision, GiveUp)
    assert "has no harness named 'lost'" in decision.error.message


@pytest.mark.parametrize(
    "registry",
    [
        HarnessRegistry(StandardHarness()),
        HarnessRegistry(StandardHarness(), [MinimalHarness(SETUP)]).without("lost", "It failed."),
    ],
)
def test_no_call_runs_without_the_harness_that_might_have_refused_it(
    registry: HarnessRegistry,
) -> None:
    log = Log().called("bash")
    assert isinstance(log.next(), RunTools)
    harness = registry.choose(SessionAgent(metadata={HARNESS_KEY: "lost"}))
    decision = harness.decide(log.state(), InputWaiting(), Mine())
    assert isinstance(decision, Interrupt)
    assert [call.name for call in decision.calls] == ["bash"]
