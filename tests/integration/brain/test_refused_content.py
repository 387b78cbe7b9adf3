"""A request that is refused for what it shows must not have every later one refused, too."""

from __future__ import annotations

import json

import pytest

from drover.event.v1.content_pb2 import (
    Base64Source,
    ContentBlock,
    DocumentBlock,
    DocumentSource,
    ImageBlock,
    ImageSource,
    PlainTextSource,
    TextBlock,
    UrlSource,
)
from drover.event.v1.event_pb2 import Event
from drover.event.v1.session_event_pb2 import (
    RETRY_STATUS_TYPE_EXHAUSTED,
    RETRY_STATUS_TYPE_RETRYING,
)
from drover.event.v1.user_event_pb2 import UserMessage
from drover.hands.v1 import hands_service_pb2 as hands
from services.brain.model.port import ModelError, ModelErrorKind
from tests.doubles.lease_service import FakeSession
from tests.doubles.scripted_model import text, tool
from tests.integration.brain.agents import custom_tool
from tests.integration.brain.conftest import Rig

IMAGE = ContentBlock(
    image=ImageBlock(source=ImageSource(base64=Base64Source(media_type="image/png", data="iVBO")))
)
LINK = ContentBlock(image=ImageBlock(source=ImageSource(url=UrlSource(url="https://a.test/b.png"))))
PAPER = ContentBlock(
    document=DocumentBlock(
        title='A "title"',
        context="b",
        source=DocumentSource(
            text=PlainTextSource(media_type="text/plain", data='{"type":"image"}')
        ),
    )
)
NO_IMAGE = "[An image was here. The model's API refused it, so it cannot be shown.]"
NO_PAPER = "[A document was here. The model's API refused it, so it cannot be shown.]"


def words(value: str) -> ContentBlock:
    return ContentBlock(text=TextBlock(text=value))


def refused(status: int = 400, *, overflow: bool = False) -> ModelError:
    return ModelError(
        ModelErrorKind.REQUEST_FAILED,
        "image could not be processed",
        status=status,
        retryable=False,
        overflow=overflow,
    )


def say(session: FakeSession, *blocks: ContentBlock) -> None:
    session.send(Event(user_message=UserMessage(content=blocks)))


def sent(rig: Rig) -> list[str]:
    """What the last request shows of the user's side, as text."""
    told = []
    for message in rig.model.requests[-1]["messages"]:
        if message["role"] == "user":
            told += [block.get("text", json.dumps(block)) for block in message["content"]]
    return told


@pytest.mark.parametrize(("status", "overflow"), [(400, False), (413, True)])
async def test_what_the_user_showed_is_left_out_of_every_turn_after_the_one_it_ended(
    rig: Rig, status: int, overflow: bool
) -> None:
    session = rig.session()
    rig.model.fail(refused(status, overflow=overflow))
    say(session, words("Look:"), IMAGE, LINK, PAPER)
    say(session, words("And here."), IMAGE)
    await rig.wake(session)
    (told,) = session.of("session_error")
    error = told.session_error.error
    assert error.HasField("model_request_failed_error")
    assert error.retry_status.type == RETRY_STATUS_TYPE_EXHAUSTED
    assert session.log[-1].session_status_idle.stop_reason.HasField("retries_exhausted")
    rig.model.say(text("I cannot see it."))
    session.message("Well?")
    # A brain that only knows the log comes to the same bytes.
    await rig.wake(session)
    *left, later, picture, asked = sent(rig)
    assert left == ["Look:", NO_IMAGE, NO_IMAGE, NO_PAPER]
    # What the refused request did not hold is shown.
    assert (later, asked) == ("And here.", "Well?")
    assert json.loads(picture)["type"] == "image"


async def test_what_a_tool_showed_is_left_out_and_the_turn_goes_on(rig: Rig) -> None:
    session = rig.session()

    async def shows(_request: hands.ExecuteRequest) -> hands.ExecuteResponse:
        return hands.ExecuteResponse(
            content=[words("a.png"), IMAGE], verdict=hands.VERDICT_COMPLETED
        )

    rig.hands.behaviours["read"] = shows
    rig.model.say(tool("read", {"file_path": "a.png"}))
    rig.model.fail(refused())
    rig.model.say(text("It cannot be read."))
    session.message("What is in a.png?")
    await rig.wake(session)
    (told,) = session.of("session_error")
    assert told.session_error.error.retry_status.type == RETRY_STATUS_TYPE_RETRYING
    assert session.kinds.count("session_status_rescheduled") == 1
    assert session.log[-1].session_status_idle.stop_reason.HasField("end_turn")
    result = rig.model.requests[-1]["messages"][-1]["content"][0]
    assert [part["text"] for part in result["content"]] == ["a.png", NO_IMAGE]
    assert len(rig.hands.ran) == 1


async def test_what_the_model_has_answered_once_stays_shown(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(text("A cat."))
    say(session, IMAGE)
    await rig.wake(session)
    rig.model.fail(refused())
    say(session, LINK)
    await rig.wake(session)
    rig.model.say(text("I see the first only."))
    session.message("Well?")
    await rig.wake(session)
    first, second, asked = sent(rig)
    assert json.loads(first)["source"]["data"] == "iVBO"
    assert (second, asked) == (NO_IMAGE, "Well?")


async def test_a_refusal_without_anything_shown_changes_nothing(rig: Rig) -> None:
    session = rig.session(custom_tool("ask"))
    rig.model.fail(refused())
    session.message('Is {"type":"image","source":{"type":"url","url":"x"}} an image?')
    await rig.wake(session)
    assert session.of("span_model_request_end")[-1].span_model_request_end.stop_reason == ""
    rig.model.say(text("No."))
    session.message("Well?")
    await rig.wake(session)
    assert sent(rig)[0].startswith('Is {"type"')
