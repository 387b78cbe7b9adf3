"""Files that messages and results show: there, and of a kind that a model can be shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from chassis.errors import DroverError, Reason
from drover.event.v1 import event_pb2
from drover.file.v1 import file_pb2
from services.session.domain import sources
from tests.doubles.session_events import custom_result, message, system_message, worker_result

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def showing(event, **shown):
    """The event with a block behind the others for each kind and file."""
    content = getattr(event, event.WhichOneof("payload")).content
    for kind, file_id in shown.items():
        getattr(content.add(), kind).source.file.file_id = file_id
    return event


def refused(kind, file):
    uses = sources.uses([message(), showing(message(), **{kind: "file_1"})], "events")
    with pytest.raises(DroverError) as caught:
        sources.check(uses, {} if file is None else {"file_1": file}, NOW)
    assert caught.value.message.startswith("events.1.content.1.source.file_id: ")
    return caught.value


@pytest.mark.parametrize("make", [message, lambda: custom_result("c"), lambda: worker_result("c")])
def test_messages_and_results_show_files(make):
    uses = sources.uses([make(), showing(make(), image="file_1", document="file_2")], "events")
    assert [(use.file_id, use.kind, use.path) for use in uses] == [
        ("file_1", "image", "events.1.content.1.source.file_id"),
        ("file_2", "document", "events.1.content.2.source.file_id"),
    ]


def test_what_is_no_file_is_not_asked_for():
    event = message()
    event.user_message.content.add().image.source.url.url = "https://example.com/a.png"
    event.user_message.content.add().document.source.text.data = "text"
    assert sources.uses([event, system_message(), event_pb2.Event()], "events") == []


@pytest.mark.parametrize(
    ("kind", "mime_type"),
    [
        ("image", "image/png"),
        ("image", "IMAGE/JPEG"),
        ("document", "application/pdf"),
        ("document", "text/plain"),
        ("document", "text/markdown; charset=utf-8"),
    ],
)
def test_a_file_of_a_kind_that_fits_is_taken(kind, mime_type):
    file = file_pb2.File(id="file_1", mime_type=mime_type)
    file.expires_at.FromDatetime(NOW + timedelta(seconds=1))
    sources.check(sources.uses([showing(message(), **{kind: "file_1"})], "events"),
                  {"file_1": file}, NOW)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "mime_type"),
    [
        ("image", "application/pdf"),
        ("image", "text/plain"),
        ("document", "image/png"),
        ("document", "application/octet-stream"),
        ("document", ""),
    ],
)
def test_a_file_of_another_kind_is_refused_by_path(kind, mime_type):
    error = refused(kind, file_pb2.File(id="file_1", mime_type=mime_type))
    assert error.reason is Reason.INVALID_ARGUMENT
    taken = {"image": "an image is an image/…", "document": "a document is an application/pdf or"}
    assert taken[kind] in error.message


def test_a_file_that_is_not_there_is_not_found_by_path():
    assert refused("image", None).reason is Reason.NOT_FOUND


def test_a_file_that_has_expired_is_not_found_and_why():
    file = file_pb2.File(id="file_1", mime_type="image/png")
    file.expires_at.FromDatetime(NOW)
    error = refused("image", file)
    assert (error.reason, error.error_code) == (Reason.NOT_FOUND, "file_expired")


def test_a_hundred_documents_are_named_by_their_files_and_no_more():
    event, other = message(), showing(message(), image="file_1")
    for number in range(100):
        showing(event, document=f"file_{number}")
    assert len(sources.uses([event, other], "initial_events")) == 101
    with pytest.raises(DroverError) as caught:
        sources.uses([event, showing(other, document="file_1")], "initial_events")
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    assert caught.value.message.startswith("initial_events: ")
