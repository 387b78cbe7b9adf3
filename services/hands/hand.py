"""A hand: a running sandbox, and the calls that are under way in it.

Everything that the agent says is untrusted: frames are bounded and checked, and an agent that
breaks the protocol is ended with its sandbox.
"""

from __future__ import annotations

import asyncio
import binascii
import re
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import orjson
import structlog

from drover.event.v1.content_pb2 import ContentBlock
from services.hands.backends import inside
from services.hands.backends.port import BackendUnavailable, complaint
from services.hands.domain.packages import NONE, UNLAYERED, environment
from services.hands.egress import variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from drover.event.v1.session_event_pb2 import SessionError
    from services.hands.backends.port import Sandbox
    from services.hands.domain.toolset import ToolCall
    from services.hands.egress.access import Access

    TakeOutput = Callable[[bytes, int], None]
    """Takes what was printed next, after so many bytes that are left out."""

_PREFIX: Final = 4
_MAX_FRAME: Final = 32 * 1024 * 1024  # the largest PDF in base64 fits
_MAX_TEXT_FRAME: Final = 2 * 1024 * 1024  # the longest result, every character escaped, fits
_MAX_GREETING: Final = 4096
_START_SECONDS: Final = 15.0
_MAX_SECONDS: Final = 1e6
_MAX_BYTES: Final = 1 << 50
_MEDIA_TYPES: Final = {
    "image": {"image/png", "image/jpeg", "image/gif", "image/webp"},
    "document": {"application/pdf"},
}
_UNSAFE_NAME = re.compile(r"[^A-Za-z0-9_-]")
_CANCEL_SECONDS: Final = 1.0

_log = structlog.get_logger("hands.hand")


class HandDied(Exception):  # noqa: N818  # a thing that happens
    """The sandbox is gone; the text says why, if it is known."""


class ProtocolBroken(Exception):  # noqa: N818  # a thing that happens
    """The agent said what no agent says."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a tool answered. `cancelled`: it was stopped on request."""

    content: tuple[ContentBlock, ...]
    is_error: bool
    cancelled: bool
    duration: timedelta


class Lost(Enum):
    """Why a command may find another shell than the session's last one left."""

    NOTHING = "nothing"
    """It does not, or that command's own result said so."""
    SHELL = "shell"
    """That command was stopped on request, and its shell with it."""
    SANDBOX = "sandbox"
    """The session had a sandbox before this one, in which commands may have run."""


class Hand:
    """Speaks with the agent of one sandbox, once `open` has returned.

    `grace` is how many seconds longer than its deadline a call may take before the whole sandbox is
    killed. `lost` is what the next command is to be told of, `backend` the name of what made it,
    `started_at` a monotonic time and `workspace_bytes` its bound, 0 if the installation's default.
    `access` is its way out, if it has one, which ends with it. `missing` says which repositories
    could not be cloned into it, `lacking` what of its `packages` is not there. `is_fresh`: its
    workspace was made for it, so that nothing was there before. `stores` are the directories of
    memory stores that it may write to.
    """

    def __init__(
        self, hand_id: str, sandbox: Sandbox, *, grace: float, access: Access | None = None
    ) -> None:
        self.id = hand_id
        self.access = access
        self.backend = self.image = ""
        self.packages, self.packages_key, self.layering = NONE, "", UNLAYERED
        self.started_at = 0.0
        self.workspace_bytes = 0
        self.is_fresh = False
        self.stores: tuple[str, ...] = ()
        self._sandbox = sandbox
        self._grace = grace
        self._calls: dict[int, asyncio.Future[Reply]] = {}
        self._numbers: dict[str, int] = {}
        self._followed: dict[int, TakeOutput] = {}
        self._next = 0
        self._why_dead: str | None = None
        self._reading = 0
        self.lost = Lost.NOTHING
        self.missing: tuple[SessionError, ...] = ()
        self.lacking: tuple[SessionError, ...] = ()
        self._absent: dict[str, tuple[SessionError, ...]] = {}
        self.dead = asyncio.Event()

    @property
    def problems(self) -> tuple[SessionError, ...]:
        """What the session has to do without, as things are."""
        return (
            *(self.access.problems if self.access is not None else ()),
            *self.missing,
            *self.lacking,
            *chain.from_iterable(self._absent.values()),
        )

    def tell(self, piece: str, errors: Iterable[SessionError]) -> None:
        """Says what could not be brought, of one kind of things: in place of what was said before.

        `piece` names the kind.
        """
        self._absent.pop(piece, None)
        if told := tuple(errors):
            self._absent[piece] = told

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._calls)

    async def open(self, tasks: asyncio.TaskGroup) -> None:
        """Waits for the agent, confines the sandbox and lets the agent serve.

        Raises `BackendUnavailable`; the sandbox has ended then.
        """
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._greet()
        except BaseException as error:
            if self.access is not None:
                self.access.close()
            await self._sandbox.kill()
            if isinstance(error, TimeoutError):
                text = f"the sandbox was not ready within {_START_SECONDS:g} s"
                raise BackendUnavailable(text) from error
            raise
        tasks.create_task(self._listen(), name=f"hand {self.id}")

    async def run(self, call_id: str, call: ToolCall, take: TakeOutput | None = None) -> Reply:
        """Runs one tool call; `take` is for what it prints meanwhile. Raises `HandDied`."""
        if self.dead.is_set():
            raise HandDied(self._why_dead or "it ended by itself")
        self._next += 1
        number = self._numbers[call_id] = self._next
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[number] = reply
        self._reading += call.tool == "read"
        name = _UNSAFE_NAME.sub("_", call_id)
        message = {
            "type": "call",
            "id": number,
            "tool": call.tool,
            "input": call.input,
            "timeout": call.timeout,
            "spill": f"/mnt/session/tool_outputs/{name}.txt",
        }
        try:
            self._send(message)
            if take is not None:
                self.follow(call_id, take)
            # Not `wait_for`: this wait is on the path of every call.
            watch = asyncio.get_running_loop().call_later(
                call.timeout + self._grace, self._overdue, number
            )
            try:
                return await reply
            finally:
                watch.cancel()
        finally:
            self._reading -= call.tool == "read"
            self._calls.pop(number, None)
            self._numbers.pop(call_id, None)
            self._followed.pop(number, None)

    def follow(self, call_id: str, take: TakeOutput | None) -> None:
        """Has `take` told what a command has printed and goes on to print; None stops that.

        Nothing happens for a call that does not run.
        """
        number = self._numbers.get(call_id)
        if number is None or self._why_dead is not None:
            return
        if take is not None:
            self._followed[number] = take  # for good: what was sent before it stops still comes
        self._send({"type": "follow", "id": number, "on": take is not None})

    def assign(self, session_id: str) -> None:
        """Has the hand serve a session, and no other from now on."""
        if self.access is not None:
            self.access.assign(session_id, self.change_variables)

    def change_variables(self, values: Mapping[str, str]) -> None:
        """Has the next commands find these, and no longer those that were told before."""
        if self._why_dead is None:
            self._send({"type": "variables", "values": dict(values)})

    async def cancel(self, call_id: str) -> None:
        """Stops a call: `run` then answers, unless the sandbox had to be killed for it."""
        number = self._numbers.get(call_id)
        if number is None or self._why_dead is not None:
            return
        reply = self._calls[number]
        self._send({"type": "cancel", "id": number})
        await asyncio.wait([reply], timeout=_CANCEL_SECONDS)
        if not reply.done():
            await self.kill("it did not stop a cancelled call")

    async def kill(self, why: str) -> None:
        """Ends the sandbox; calls under way raise `HandDied`. No process is left afterwards."""
        self._bury(why)
        await self._sandbox.kill()

    # the agent

    def _send(self, message: dict[str, Any]) -> None:
        body = orjson.dumps(message)
        self._sandbox.writer.write(len(body).to_bytes(_PREFIX, "big") + body)

    async def _receive(self) -> dict[str, Any]:
        """The next frame. Raises `ProtocolBroken` and `asyncio.IncompleteReadError`."""
        reader = self._sandbox.reader
        size = int.from_bytes(await reader.readexactly(_PREFIX), "big")
        if size > (_MAX_FRAME if self._reading else _MAX_TEXT_FRAME):
            raise ProtocolBroken(f"a frame of {size} bytes")
        try:
            message = orjson.loads(await reader.readexactly(size))
        except orjson.JSONDecodeError as error:
            raise ProtocolBroken("a frame that is not JSON") from error
        if not isinstance(message, dict):
            raise ProtocolBroken("a frame that is no object")
        return message

    async def _greet(self) -> None:
        reader = self._sandbox.reader
        forward = variables.FORWARD if self.access is not None else None
        start = b""
        try:
            # Until it is up, the agent's stream is also where whatever starts it complains.
            start = await reader.readexactly(_PREFIX)
            size = int.from_bytes(start, "big")
            if size > _MAX_GREETING:
                start += await reader.read(_MAX_GREETING)
                raise BackendUnavailable(complaint(start, self._sandbox.advice))
            await reader.readexactly(size)
            await self._sandbox.confine()
            self._send(
                {
                    "type": "hello",
                    "rlimits": dict(self._sandbox.resource_limits),
                    "environment": self._environment(variables.NETWORK if forward else {}),
                    "directory": inside.CONTROL_DIRECTORY,
                    "forward": forward,
                }
            )
            await self._receive()
        except asyncio.IncompleteReadError as error:
            said = start + error.partial
            raise BackendUnavailable(complaint(said, self._sandbox.advice)) from error
        except (OSError, ProtocolBroken) as error:
            raise BackendUnavailable(f"the sandbox did not start: {error}") from error

    def _environment(self, network: Mapping[str, str]) -> dict[str, str]:
        found = {**inside.ENVIRONMENT, **network}
        if self.packages_key:  # they are mounted
            found |= environment(self.packages, found["PATH"])
        return found

    async def _listen(self) -> None:
        why = ""
        try:
            while True:
                self._deliver(await self._receive())
        except (asyncio.IncompleteReadError, OSError):
            pass
        except ProtocolBroken as error:
            why = f"its agent sent {error}"
            _log.warning("agent_broke_protocol", hand_id=self.id, what=str(error))
        except Exception:  # noqa: BLE001  # whatever it was: that sandbox must go, the others stay
            why = "its agent could not be understood"
            _log.exception("agent_not_understood", hand_id=self.id)
        self.dead.set()  # from here on nobody is given it, though why it ended is not known yet
        await self._sandbox.kill()
        self._bury(why or await self._sandbox.ended() or "it ended by itself")

    def _deliver(self, message: dict[str, Any]) -> None:
        kind, number = message.get("type"), message.get("id")
        if kind == "output" and isinstance(number, int) and number in self._followed:
            self._followed[number](*_output(message))
            return
        if kind != "result":
            raise ProtocolBroken("a frame of unknown type")
        reply = self._calls.get(number) if isinstance(number, int) else None
        if reply is None or reply.done():
            raise ProtocolBroken("a result of no call")
        reply.set_result(_reply(message))

    def _overdue(self, number: int) -> None:
        """A call outlived its deadline: its agent is stopped, starved or lying."""
        if number in self._calls:
            _log.warning("agent_overdue", hand_id=self.id)
            self._bury("it did not end a call that was past its deadline")
            self._sandbox.writer.transport.abort()  # the listener then kills it

    def _bury(self, why: str) -> None:
        if self._why_dead is not None:
            return
        self._why_dead = why
        self.dead.set()
        if self.access is not None:
            self.access.close()
        for reply in self._calls.values():
            if not reply.done():
                reply.set_exception(HandDied(why))


def _output(message: dict[str, Any]) -> tuple[bytes, int]:
    text, dropped = message.get("text"), message.get("dropped")
    if not isinstance(text, str) or not isinstance(dropped, int) or not 0 <= dropped < _MAX_BYTES:
        raise ProtocolBroken("output that is none")
    try:
        return text.encode("latin-1"), dropped
    except UnicodeEncodeError as error:
        raise ProtocolBroken("output that is no bytes") from error


def _reply(message: dict[str, Any]) -> Reply:
    ended, error = message.get("ended"), message.get("error")
    milliseconds = message.get("milliseconds")
    if ended not in {"completed", "timeout", "cancelled"} or not isinstance(error, bool):
        raise ProtocolBroken("a result without its end")
    if not isinstance(milliseconds, int | float) or not 0 <= milliseconds < _MAX_SECONDS * 1000:
        raise ProtocolBroken("a result without a duration")
    content: tuple[ContentBlock, ...] = ()
    text, block = message.get("text", ""), message.get("block")
    if not isinstance(text, str):
        raise ProtocolBroken("text that is none")
    if block is not None:
        content = (_media(block),)
    elif text:
        shown = ContentBlock()
        shown.text.text = text.replace("\0", "\ufffd")
        content = (shown,)
    return Reply(
        content,
        is_error=error or ended != "completed",
        cancelled=ended == "cancelled",
        duration=timedelta(milliseconds=milliseconds),
    )


def _media(block: object) -> ContentBlock:
    if not isinstance(block, dict):
        raise ProtocolBroken("a block that is none")
    kind, media_type, data = (block.get(key) for key in ("type", "media_type", "data"))
    if not (isinstance(data, str) and isinstance(kind, str) and isinstance(media_type, str)):
        raise ProtocolBroken("a block without data")
    if media_type not in _MEDIA_TYPES.get(kind, ()):
        raise ProtocolBroken("a block of unknown type")
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise ProtocolBroken("a block whose data is not base64") from error
    content = ContentBlock()
    source = content.image.source if kind == "image" else content.document.source
    source.base64.data, source.base64.media_type = data, media_type
    return content
