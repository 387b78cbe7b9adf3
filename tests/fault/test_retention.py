"""What is deleted is gone, wherever it was kept and whoever was away; what is archived stays."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import grpc
import httpx2
import pytest

from chassis.errors import Reason
from chassis.grpc.status import from_rpc_error
from drover.hands.v1 import hands_service_pb2, hands_service_pb2_grpc
from tests.doubles import traces
from tests.doubles.messages_api import ToolUse, text, tools
from tests.doubles.postgres import Cluster
from tests.e2e.driving import TOOLSET, history, new_session, run_turn, send
from tests.e2e.replicas import Replicas
from tests.fault.fleet import running_fleet

PARTS = ("registry", "session-1", "hands", "vault_proxy", "brain-1", "gateway-1")
GONE_SECONDS = 60.0
"""By when the last of it is gone: a service that was killed had leased its work for a while."""
DESK: dict[str, Any] = {
    "type": "custom",
    "name": "ask_desk",
    "description": "Asks the desk.",
    "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
}


@dataclass
class Kept:
    """A stack, and what it keeps."""

    stack: Replicas
    cluster: Cluster
    database: str

    def rows(self, needle: str) -> dict[str, int]:
        """Rows of any table that mention it."""
        if self.database:
            return traces.in_postgres(self.cluster, self.database, needle)
        return traces.in_sqlite(self.stack.data, needle)

    def tables(self, needle: str) -> set[str]:
        """The names of the tables that have such rows."""
        return {name.rpartition(".")[2] for name in self.rows(needle)}

    def files(self, needle: str) -> list[str]:
        """Files that hold it or are named after it. The logs of what was done name sessions."""
        found = traces.on_disk(self.stack.data, needle)
        return [path for path in found if not path.startswith("logs/")]

    def delete(self, session_id: str) -> None:
        """Deletes a session, by a client that does not count its attempts.

        For one that does, the answer to the deletion is kept too, for the minutes in which it may
        be asked for again.
        """
        url = f"{self.stack.url()}/v1/sessions/{session_id}"
        assert httpx2.delete(url, headers=self.stack.headers, timeout=30).status_code == 200

    def wait_gone(self, *needles: str) -> None:
        """Returns once nothing is left; fails with what is."""

        def left() -> Iterator[Any]:
            yield from map(self.rows, needles)
            yield from map(self.files, needles)

        try:
            self.stack.wait_for(lambda: not any(left()), "the end of it", GONE_SECONDS)
        except AssertionError:
            raise AssertionError([*left()]) from None


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: Cluster
) -> Iterator[Kept]:
    url = postgres.new_database() if request.param == "postgresql" else None
    with running_fleet(tmp_path_factory.mktemp("kept"), url, *PARTS) as stack:
        stack.wait_ready()
        yield Kept(stack, postgres, url.rpartition("/")[2] if url else "")


@pytest.fixture
def kept(live: Kept) -> Kept:
    live.stack.revive()
    live.stack.model.reset()
    return live


def lived(kept: Kept, client: anthropic.Anthropic) -> tuple[str, str]:
    """A session that left something everywhere; its id, and a word that all of it holds."""
    word = f"word{uuid.uuid4().hex}"
    kept.stack.model.script(
        tools(
            ToolUse("bash", {"command": f"echo {word} | tee note /mnt/session/outputs/out"}),
            ToolUse("ask_desk", {"q": word}),
        ),
        text(word),
        text(word),
    )
    once = {"idempotency-key": uuid.uuid4().hex}
    session = new_session(
        client, tools=[TOOLSET, DESK], title=word, metadata={"word": word}, extra_headers=once
    )
    waits = run_turn(client, session.id, word)
    answer: Any = {
        "type": "user.custom_tool_result",
        "custom_tool_use_id": waits[-1].stop_reason.event_ids[0],
        "content": [{"type": "text", "text": word}],
    }
    client.beta.sessions.events.send(
        session.id, events=[answer], extra_headers={"idempotency-key": uuid.uuid4().hex}
    )
    kept.stack.until_idle(client, session.id, answers=1)
    send(client, session.id, word)
    kept.stack.until_idle(client, session.id, answers=2)
    # What an upload has stored that is broken off, or comes too late, goes minutes later.
    kept.stack.wait_for(lambda: "files" in kept.tables(session.id), "its output to be published")
    return session.id, word


def test_deleted_session_leaves_nothing_in_any_table_nor_on_disk(kept: Kept) -> None:
    with kept.stack.client() as client:
        session, word = lived(kept, client)
        tables = kept.tables(session)
        # What the walk must be able to see, or finding nothing would say nothing.
        assert {"sessions", "session_details", "threads", "events", "inbox", "calls"} <= tables
        assert {"answers", "executions", "fences"} <= tables
        assert kept.files(session)
        assert kept.files(word)
        kept.delete(session)
        kept.wait_gone(session, word)
        with pytest.raises(anthropic.NotFoundError):
            client.beta.sessions.retrieve(session)
        assert call_of_a_late_brain(kept.stack, session) is Reason.LEASE_LOST
        kept.wait_gone(session, word)


def test_nothing_is_left_when_the_hands_were_away(kept: Kept) -> None:
    with kept.stack.client() as client:
        session, word = lived(kept, client)
        kept.stack.kill("hands")
        kept.delete(session)
        # What the hand has published goes behind the hand.
        left = {"hand_releases", "executions", "fences", "files"}
        assert kept.tables(session) == left
        assert kept.files(word)
        kept.stack.revive()
        kept.wait_gone(session, word)


def test_no_file_is_left_when_the_registry_was_away(kept: Kept) -> None:
    with kept.stack.client() as client:
        word = f"word{uuid.uuid4().hex}"
        uploaded = client.beta.files.upload(file=("a.txt", word.encode()))
        session = new_session(client, resources=[{"type": "file", "file_id": uploaded.id}])
        client.beta.files.delete(uploaded.id)
        assert kept.files(word)
        kept.stack.kill("registry")
        kept.delete(session.id)
        kept.stack.wait_for(
            lambda: kept.tables(session.id) == {"files", "file_releases"},
            "the end of all others",
        )
        kept.stack.revive()
        kept.wait_gone(session.id, word)


def test_nothing_is_left_when_the_session_service_dies_behind_its_commit(kept: Kept) -> None:
    with kept.stack.client() as client:
        session, word = lived(kept, client)
        kept.stack.pause("hands")  # so that the release is under way
        kept.delete(session)
        kept.stack.kill("session-1")
        kept.stack.resume("hands")
        kept.stack.revive()
        kept.wait_gone(session, word)


def test_nothing_is_left_when_the_hands_die_while_they_delete(kept: Kept) -> None:
    with kept.stack.client() as client:
        session, word = lived(kept, client)
        workspace = kept.stack.workspace(session)
        for number in range(3000):
            folder = workspace / f"{number % 50}"
            folder.mkdir(exist_ok=True)
            (folder / f"{number}").write_text(word)
        kept.delete(session)
        kept.stack.wait_for(lambda: not workspace.exists(), "the deletion to begin")
        kept.stack.kill("hands")
        kept.stack.revive()
        kept.wait_gone(session, word)


def test_archived_session_stays_readable_and_takes_nothing(kept: Kept) -> None:
    stack = kept.stack
    with stack.client() as client:
        session, word = lived(kept, client)
        before = history(client, session)
        archived = client.beta.sessions.archive(session)
        assert archived.status == "terminated"
        for _ in range(2):  # and after everything was started anew
            log = history(client, session)
            assert [event.id for event in log[: len(before)]] == [event.id for event in before]
            assert log[-1].type == "session.status_terminated"
            assert client.beta.sessions.retrieve(session).title == word
            [thread] = client.beta.sessions.threads.list(session)
            assert thread.status == "terminated"
            assert followed(stack, session, log[2].id) == [event.id for event in log[3:]]
            with pytest.raises(anthropic.BadRequestError):
                send(client, session, "more")
            with pytest.raises(anthropic.BadRequestError):
                client.beta.sessions.events.send(session, events=[{"type": "user.interrupt"}])
            assert client.beta.sessions.archive(session).archived_at == archived.archived_at
            stack.kill("session-1", "hands", "gateway-1")
            stack.revive()
        stack.wait_for(lambda: "hand_releases" not in kept.tables(session), "the hand's release")
        assert call_of_a_late_brain(stack, session) is Reason.LEASE_LOST
        assert (stack.workspace(session) / "note").read_text().strip() == word
        kept.delete(session)
        kept.wait_gone(session, word)


def call_of_a_late_brain(stack: Replicas, session: str) -> Reason:
    """What becomes of a call that a brain makes which has slept through the session's end."""
    last = max(
        line["generation"]
        for line in stack.log("session-1", event="lease_opened")
        if line["session_id"] == session
    )
    request = hands_service_pb2.ExecuteRequest(
        session_id=session,
        call_id="sevt_late",
        generation=last,
        name="bash",
        input='{"command":""}',
    )
    with grpc.insecure_channel(stack.address("hands")) as channel:
        hands = hands_service_pb2_grpc.HandsServiceStub(channel)
        identity = (("authorization", f"Bearer {stack.token}"),)
        with pytest.raises(grpc.RpcError) as refused:
            hands.Execute(request, metadata=identity, timeout=60)
    return from_rpc_error(refused.value).reason


def followed(stack: Replicas, session: str, after: str) -> list[str]:
    """The ids that a stream from behind an event brings until it ends by itself."""
    url = f"{stack.url()}/v1/sessions/{session}/events/stream"
    with httpx2.stream(
        "GET", url, headers=stack.headers | {"last-event-id": after}, timeout=60
    ) as answer:
        assert answer.status_code == 200
        return [line.removeprefix("id: ") for line in answer.iter_lines() if line[:4] == "id: "]
