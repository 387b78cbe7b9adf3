"""The Files API and the resources of sessions, by the official client with strict validation."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import Anthropic

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import new_session, run_turn, send
from tests.e2e.stack import BETA, KEY, Stack

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def client(stack: Stack) -> Iterator[Anthropic]:
    with stack.client(_strict_response_validation=True) as client:
        yield client


@pytest.mark.parametrize("surface", ["beta", "general"])
def test_files_are_uploaded_listed_read_and_deleted(client: Anthropic, surface: str) -> None:
    files: Any = client.beta.files if surface == "beta" else client.files
    name = "Résumé 漢字 🐄.txt"
    made = files.upload(file=(name, b"some text", "text/plain"))
    assert (made.filename, made.mime_type, made.size_bytes) == (name, "text/plain", 9)
    assert made.downloadable is False
    assert files.retrieve_metadata(made.id) == made
    assert made.id in [file.id for file in files.list(limit=5)]
    (only,) = files.list(ids=[made.id, "file_unknown"])
    assert only == made
    with pytest.raises(anthropic.BadRequestError) as refused:
        files.download(made.id)
    assert refused.value.body["error"]["details"]["error_code"] == "file_not_downloadable"  # type: ignore[index]
    assert files.delete(made.id).id == made.id
    for gone in (files.retrieve_metadata, files.download, files.delete):
        with pytest.raises(anthropic.NotFoundError):
            gone(made.id)


def test_pages_of_files_are_whole_and_newest_first(client: Anthropic) -> None:
    made = [client.beta.files.upload(file=(f"{n}.txt", b"x")).id for n in range(3)]
    first = client.beta.files.list(limit=2)
    assert [file.id for file in first.data] == [made[2], made[1]]
    assert first.next_page
    assert client.beta.files.list(limit=2, page=first.next_page).data[0].id == made[0]


def test_what_is_no_upload_is_refused_with_a_reason(stack: Stack, client: Anthropic) -> None:
    headers = {"x-api-key": KEY}
    url = f"{stack.url}/v1/files"
    before = [file.id for file in client.beta.files.list()]
    for given in (
        {"json": {"file": "x"}},
        {"files": {"other": ("a.txt", b"x")}},
        {"files": [("file", ("a.txt", b"x")), ("file", ("b.txt", b"y"))]},
        {"files": {"file": ("a.txt", b"x")}, "data": {"expires_in_seconds": "60"}},
        {"files": {"file": ("a.txt", b"x")}, "data": {"expires_in_seconds": "soon"}},
        {"files": {"file": ('a"*?.txt', b"x")}},
        {"files": {"file": ("x" * 256, b"x")}},
        {"files": {"file": ("a.txt", b"x")}, "data": {"surprise": "1"}},
    ):
        answer = httpx2.post(url, headers=headers, **given, timeout=60)  # type: ignore[arg-type]
        assert answer.status_code == 400, (given, answer.text)
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert [file.id for file in client.beta.files.list()] == before


def test_session_is_given_files_takes_more_and_lets_go_of_them(
    stack: Stack, client: Anthropic
) -> None:
    uploaded = client.beta.files.upload(file=("a.txt", b"first"))
    session = new_session(client, resources=[{"type": "file", "file_id": uploaded.id}])
    (given,) = session.resources
    assert given.mount_path == f"/mnt/session/uploads/{uploaded.id}"
    copy = client.beta.files.retrieve_metadata(given.file_id)
    assert copy.scope is not None
    assert copy.scope.id == session.id
    client.beta.files.delete(uploaded.id)  # the session's copy is its own

    stack.model.script(tools(ToolUse("read", {"file_path": given.mount_path})), text("read it"))
    seen = run_turn(client, session.id, "read")
    (result,) = [event for event in seen if event.type == "agent.tool_result"]
    assert "first" in result.content[0].text

    other = client.beta.files.upload(file=("b.txt", b"second"))
    resources = client.beta.sessions.resources
    added = resources.add(session.id, type="file", file_id=other.id, mount_path="/workspace/b.txt")
    assert added.mount_path == "/mnt/session/uploads/workspace/b.txt"
    assert [one.id for one in resources.list(session.id)] == [given.id, added.id]  # type: ignore[union-attr]
    read = resources.retrieve(added.id, session_id=session.id)
    assert read == added
    for clash in ("/workspace/b.txt", "/workspace/b.txt/below"):
        with pytest.raises(anthropic.BadRequestError):
            resources.add(session.id, type="file", file_id=other.id, mount_path=clash)
    removed = resources.delete(given.id, session_id=session.id)
    assert (removed.id, removed.type) == (given.id, "session_resource_deleted")
    with pytest.raises(anthropic.NotFoundError):
        resources.retrieve(given.id, session_id=session.id)

    stack.model.script(
        tools(ToolUse("bash", {"command": "cd /mnt/session/uploads && find . -type f"})),
        text("looked"),
    )
    seen = run_turn(client, session.id, "look")
    (result,) = [event for event in seen if event.type == "agent.tool_result"]
    assert result.content[0].text.split() == ["./workspace/b.txt"]

    betas: Any = [BETA]
    assert len(client.beta.files.list(scope_id=session.id, betas=betas).data) == 1
    client.beta.sessions.delete(session.id)
    stack.wait_for(
        lambda: client.beta.files.list(scope_id=session.id, betas=betas).data == [],
        "the end of the session's files",
    )


def test_files_in_messages_reach_the_model_as_what_they_are(
    stack: Stack, client: Anthropic
) -> None:
    picture = client.beta.files.upload(file=("p.png", PIXEL, "image/png"))
    words = client.beta.files.upload(file=("w.txt", "schön".encode(), "text/plain"))
    session = new_session(client)
    stack.model.script(text("seen"))
    content: Any = [
        {"type": "image", "source": {"type": "file", "file_id": picture.id}},
        {"type": "document", "title": "W", "source": {"type": "file", "file_id": words.id}},
        {"type": "text", "text": "look"},
    ]
    client.beta.sessions.events.send(
        session.id, events=[{"type": "user.message", "content": content}]
    )
    stack.until_idle(client, session.id)
    image, document, *_ = stack.model.requests[-1].body["messages"][0]["content"]
    assert base64.b64decode(image["source"]["data"]) == PIXEL
    assert image["source"]["media_type"] == "image/png"
    assert document["source"] == {"type": "text", "media_type": "text/plain", "data": "schön"}
    assert document["title"] == "W"

    # And in every later request, though the file is gone.
    client.beta.files.delete(picture.id)
    stack.model.script(text("again"))
    send(client, session.id, "again")
    stack.until_idle(client, session.id, answers=2)

    for wrong in (words.id, "file_unknown"):
        block: Any = {"type": "image", "source": {"type": "file", "file_id": wrong}}
        with pytest.raises((anthropic.BadRequestError, anthropic.NotFoundError)) as refused:
            client.beta.sessions.events.send(
                session.id, events=[{"type": "user.message", "content": [block]}]
            )
        assert "events.0.content.0" in str(refused.value)
