"""The model knows of the repositories in its sandbox, by the session alone."""

from __future__ import annotations

import json

import pytest

from drover.agent.v1.tool_pb2 import CustomTool, Tool
from drover.session.v1 import session_pb2
from services.brain.harness.standard import StandardHarness
from tests.unit.brain import logs


def mounted(*tools: Tool, **checkout: str) -> session_pb2.Session:
    made = logs.session(*tools)
    repository = made.resources.add().github_repository
    repository.url = "https://github.com/acme/tools"
    repository.mount_path = "/workspace/tools"
    if "branch" in checkout:
        repository.checkout.branch.name = checkout["branch"]
    if "commit" in checkout:
        repository.checkout.commit.sha = checkout["commit"]
    return made


def system(session: session_pb2.Session) -> str:
    harness = StandardHarness()
    body = json.loads(harness.request(harness.begin(session)).body)
    return "\n".join(block["text"] for block in body.get("system", []))


@pytest.mark.parametrize(
    ("checkout", "said"),
    [
        ({}, "- https://github.com/acme/tools in /workspace/tools\n"),
        (
            {"branch": "dev"},
            "- https://github.com/acme/tools in /workspace/tools, on the branch dev\n",
        ),
        ({"commit": "a" * 40}, f"/workspace/tools, at the commit {'a' * 40}\n"),
    ],
)
def test_the_system_prompt_names_each_repository_and_its_place(
    checkout: dict[str, str], said: str
) -> None:
    assert said in system(mounted(**checkout))
    assert system(mounted(**checkout)) == system(mounted(**checkout))


def test_nothing_is_said_where_there_is_none_or_no_sandbox_to_see_it_in() -> None:
    assert "repositories" not in system(logs.session())
    custom = CustomTool(name="ask_user", description="Asks.", input_schema='{"type":"object"}')
    assert "acme/tools" not in system(mounted(Tool(custom=custom)))
