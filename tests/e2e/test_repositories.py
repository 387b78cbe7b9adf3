"""Repositories of sessions, by the official client over the whole stack (V14)."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest

from tests.doubles.git_server import GitServer, running_git_server
from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import history, new_session, run_turn
from tests.e2e.stack import Stack, running_stack

TOKEN, NEWER = "ghp_canary0123456789", "ghp_canaryNewer98765"
URL = "https://git.corp/acme/tools"
ME = "git -c user.name=A -c user.email=a@example.com"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    with running_git_server(tmp_path_factory.mktemp("git")) as running:
        running.add("acme/tools", {"a.txt": "as it was"}, tokens=[TOKEN, NEWER])
        yield running


@pytest.fixture(scope="module")
def git_stack(server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    place = tmp_path_factory.mktemp("stack")
    hosts = f"github.com=https://github.com,git.corp={server.url}"
    with running_stack(place, DROVER_GIT_HOSTS=hosts, DROVER_LOG_LEVEL="debug") as running:
        yield running


def repository(token: str | None = TOKEN, **more: Any) -> dict[str, Any]:
    given = {"type": "github_repository", "url": URL, **more}
    return given if token is None else {**given, "authorization_token": token}


def limited(client: anthropic.Anthropic) -> str:
    networking: Any = {"type": "limited", "allowed_hosts": []}
    environment = client.beta.environments.create(
        name="closed", config={"type": "cloud", "networking": networking}
    )
    return environment.id


def bash(command: str) -> Any:
    return tools(ToolUse("bash", {"command": command}))


def results(events: list[Any]) -> list[Any]:
    return [event for event in events if event.type == "agent.tool_result"]


def test_agent_works_in_a_repository_whose_token_nobody_can_find(
    git_stack: Stack, server: GitServer
) -> None:
    with git_stack.client(_strict_response_validation=True) as client:
        agent = client.beta.agents.create(
            name="clerk", model="claude-opus-5-5", tools=[{"type": "agent_toolset_20260401"}]
        )
        session = client.beta.sessions.create(
            agent=agent.id, environment_id=limited(client), resources=[repository()]
        )
        (mounted,) = session.resources
        assert mounted.type == "github_repository"
        assert (mounted.url, mounted.mount_path) == (URL, "/workspace/tools")
        git_stack.model.script(
            bash(
                "cat /workspace/tools/a.txt && cd tools && echo more >b.txt && git add b.txt"
                f" && {ME} commit -qm b && git push -q && git remote -v"
            ),
            bash("curl -sS -o /dev/null -w '%{http_code}' https://git.corp/acme/tools; env; true"),
            text("done"),
        )
        seen = run_turn(client, session.id, "work")
        first, second = results(seen)
        assert "as it was" in first.content[0].text
        assert URL in first.content[0].text
        assert not first.is_error
        assert second.content[0].text.startswith(("curl: ", "403"))
        assert server.repositories["acme/tools"].read("b.txt") == "more"
        system = git_stack.model.requests[-1].body["system"]
        assert f"{URL} in /workspace/tools" in str(system)

        # What is asked for again is the newer one's, at once.
        changed = client.beta.sessions.resources.update(
            mounted.id, session_id=session.id, authorization_token=NEWER
        )
        assert changed.id == mounted.id
        git_stack.model.script(bash("git fetch && echo fetched"), text("done"))
        run_turn(client, session.id, "again")
        assert {one.password for one in server.requests[-2:]} == {NEWER}

        listed = list(client.beta.sessions.resources.list(session.id))
        assert [one.id for one in listed if one.type == "github_repository"] == [mounted.id]
        read = client.beta.sessions.resources.retrieve(mounted.id, session_id=session.id)
        raw = httpx2.get(
            f"{git_stack.url}/v1/sessions/{session.id}", headers=git_stack.headers, timeout=60
        )
        for shown in (session, changed, listed, read, history(client, session.id), raw.text):
            assert "ghp_" not in str(shown)
        with pytest.raises(anthropic.BadRequestError):
            client.beta.sessions.resources.delete(mounted.id, session_id=session.id)
        with pytest.raises(anthropic.NotFoundError):
            client.beta.sessions.resources.add(session.id, type="file", file_id="file_1")

        basic = base64.b64encode(f"x-access-token:{TOKEN}".encode()).rstrip(b"=")
        assert git_stack.files_with(TOKEN.encode(), NEWER.encode(), basic) == []

        client.beta.sessions.archive(session.id)
        trail = httpx2.get(
            f"{git_stack.url}/v1/vault_audit",
            params={"session_id": session.id, "limit": 100},
            headers=git_stack.headers,
            timeout=60,
        ).json()["data"]
        assert {entry["verdict"] for entry in trail if entry["kind"] == "git"} == {"allowed"}
        assert "denied" in {entry["verdict"] for entry in trail if entry["kind"] == "egress"}


def test_a_clone_that_fails_is_an_event_and_the_session_goes_on(git_stack: Stack) -> None:
    with git_stack.client(_strict_response_validation=True) as client:
        session = new_session(client, resources=[repository("ghp_wrong")])
        git_stack.model.script(bash("ls -A /workspace; echo on"), bash("echo still on"), text("x"))
        seen = run_turn(client, session.id, "work")
        assert [one.content[0].text.strip() for one in results(seen)] == ["on", "still on"]
        errors = [event.error for event in seen if event.type == "session.error"]
        assert [error.type for error in errors] == ["repository_authentication_error"]
        assert errors[0].retry_status.type == "retrying"
        assert errors[0].repository_url == URL

        # With the next turn it is tried again.
        client.beta.sessions.resources.update(
            session.resources[0].id, session_id=session.id, authorization_token=TOKEN
        )
        git_stack.model.script(bash("cat /workspace/tools/a.txt"), text("x"))
        seen = run_turn(client, session.id, "once more")
        assert results(seen)[0].content[0].text.strip() == "as it was"
        assert not [event for event in seen if event.type == "session.error"]


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (repository(url="https://github.com/acme/tools.git"), "resources.0.url"),
        (repository(url="git@github.com:acme/tools"), "resources.0.url"),
        (repository(mount_path="/etc"), "resources.0.mount_path"),
        (repository("a b"), "resources.0.authorization_token"),
    ],
)
def test_what_is_no_repository_is_refused_by_its_path(
    git_stack: Stack, resource: dict[str, Any], path: str
) -> None:
    with git_stack.client() as client, pytest.raises(anthropic.BadRequestError) as caught:
        new_session(client, resources=[resource])
    assert f"{path}: " in caught.value.message
