"""What the rehearsal model sees in a request: the newest user message and what followed it.

Nothing else is remembered: every decision is made again from the messages, so that it does not
matter which process sent them or whether this server has been restarted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.brain.domain.briefing import FOUND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ROLES = frozenset({"user", "assistant", "system"})


class InvalidRequestError(ValueError):
    """The request breaks the Messages API; the text names the field."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text document attached to the message."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool call gave. A call that was never answered counts as an error."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """A tool call that an earlier answer made, with its result."""

    name: str
    result: Result


@dataclass(frozen=True, slots=True)
class Conversation:
    """The newest user message, the tools on offer, and the steps taken since.

    Each step is one earlier answer of the model: the calls it made in parallel.
    """

    text: str
    documents: tuple[Document, ...] = ()
    tools: frozenset[str] = frozenset()
    steps: tuple[tuple[Taken, ...], ...] = ()


def read_conversation(body: Mapping[str, Any]) -> Conversation:
    """The conversation in the body of a `POST /v1/messages`; raises InvalidRequestError."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError("messages: must be a list with at least one message")
    blocks = [_blocks(message, f"messages.{at}") for at, message in enumerate(messages)]
    newest = _newest_user_message(messages, blocks)
    said = _after_results(blocks[newest])
    return Conversation(
        text="\n".join(block["text"] for block in said if block["type"] == "text"),
        documents=tuple(_documents(said)),
        tools=frozenset(_offered(body)),
        steps=tuple(_steps(messages[newest + 1 :], blocks[newest + 1 :])),
    )


def _blocks(message: object, path: str) -> list[dict[str, Any]]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise InvalidRequestError(f"{path}.role: must be user, assistant or system")
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise InvalidRequestError(f"{path}.content: must be a string or a list of blocks")
    for at, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise InvalidRequestError(f"{path}.content.{at}.type: is missing")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise InvalidRequestError(f"{path}.content.{at}.text: must be a string")
    return content


def _newest_user_message(
    messages: Sequence[Mapping[str, Any]], blocks: Sequence[list[dict[str, Any]]]
) -> int:
    """The last user message that is more than tool results."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at]["role"] == "user" and _after_results(blocks[at]):
            return at
    raise InvalidRequestError("messages: no user message has content of its own")


def _after_results(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    last = max((at for at, b in enumerate(blocks) if b["type"] == "tool_result"), default=-1)
    return blocks[last + 1 :]


def _documents(blocks: Iterable[Mapping[str, Any]]) -> Iterable[Document]:
    for block in blocks:
        source = block.get("source")
        if (
            block["type"] == "document"
            and isinstance(source, dict)
            and source.get("type") == "text"
        ):
            yield Document(str(block.get("title") or ""), str(source.get("data") or ""))


def _offered(body: Mapping[str, Any]) -> Iterable[str]:
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "none":
        return
    for tool in body.get("tools") or ():
        yield str(tool.get("name"))


def _steps(
    messages: Sequence[Mapping[str, Any]], blocks: Sequence[list[dict[str, Any]]]
) -> Iterable[tuple[Taken, ...]]:
    results = {
        str(block.get("tool_use_id")): _result(block)
        for content in blocks
        for block in content
        if block["type"] == "tool_result"
    }
    unanswered = Result("the call has no result", is_error=True)
    for message, content in zip(messages, blocks, strict=True):
        calls = [block for block in content if block["type"] == "tool_use"]
        if message["role"] == "assistant" and calls:
            yield tuple(
                Taken(str(call.get("name")), results.get(str(call.get("id")), unanswered))
                for call in calls
            )


def _result(block: Mapping[str, Any]) -> Result:
    content = block.get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(
            str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type')}]"
            for part in content
            # What the brain says beside the tool is for readers, which this model is not.
            if not str(part.get("text", "")).startswith(FOUND)
        )
    return Result(content, bool(block.get("is_error")))
