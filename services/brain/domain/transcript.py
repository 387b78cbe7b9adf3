"""The conversation as bytes: what the Messages API takes as `messages`, grown block by block."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from services.brain.domain import content, media

Role = Literal["user", "assistant", "system"]

CACHE_CONTROL: Final = b',"cache_control":{"type":"ephemeral"}}'

CLEARABLE: Final = 1024
"""The weight from which on it pays to put a note in a tool result's place."""

_CLOSE = b"]},"
_ROLE_AT = len(b'{"role":"')
_ROLES: dict[int, Role] = {ord("u"): "user", ord("a"): "assistant", ord("s"): "system"}
_USER = b'{"role":"user","content":['
_SYSTEM = b'{"role":"system","content":['
_THOUGHTS = (b'{"type":"thinking"', b'{"type":"redacted_thinking"')
_RESULT = b'{"type":"tool_result"'
_RESULT_ID = re.compile(rb'\{"type":"tool_result","tool_use_id":"((?:[^"\\]|\\.)*)"')


class Shown(Enum):
    """Where the model is shown pictures and documents."""

    NOWHERE = 0
    IN_RESULTS = 1
    # Also in what the user says.
    IN_WORDS = 2


@dataclass(frozen=True, slots=True)
class Result:
    """An encoded `tool_result` block, and the id of the event that holds it for good."""

    block: bytes
    event_id: str


@dataclass(frozen=True, slots=True)
class _Clearable:
    start: int
    end: int
    weight: int
    event_id: str


class Transcript:
    """Messages, in which blocks of one role in a row share one.

    All of them lie joined in one buffer, the last one still open, so that a request costs a copy of
    it and not a walk over the conversation. Beside it stands only where messages begin, and where
    the blocks lie that may be cleared some day.
    """

    __slots__ = ("_bytes", "_light", "_results", "_starts", "_thoughts", "_turn")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._starts: list[int] = []
        self._results: list[_Clearable] = []
        self._thoughts: list[tuple[int, int]] = []
        # Where the turn begins that is open, or was the last one.
        self._turn = 0
        # Bytes that count for nothing: the data of images and documents.
        self._light = 0

    def add(self, role: Role, *blocks: bytes | Result) -> None:
        """Adds encoded blocks to the conversation's end."""
        if not blocks:
            return
        buffer = self._bytes
        if role != self.role:
            if self._starts:
                buffer += _CLOSE
            self._starts.append(len(buffer))
            buffer += b'{"role":"%b","content":[' % role.encode()
        else:
            buffer += b","
        for number, block in enumerate(blocks):
            if number:
                buffer += b","
            encoded = block.block if isinstance(block, Result) else block
            start = len(buffer)
            buffer += encoded
            light = media.light(encoded)
            self._light += light
            if isinstance(block, Result):
                if (weight := len(encoded) - light) >= CLEARABLE:
                    self._results.append(_Clearable(start, len(buffer), weight, block.event_id))
            elif role == "assistant" and encoded.startswith(_THOUGHTS):
                self._thoughts.append((start, len(buffer)))

    @property
    def role(self) -> Role | None:
        """Whose the last message is."""
        return self._role_of(-1) if self._starts else None

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def weight(self) -> int:
        """Its size in bytes, as far as bytes tell of tokens: pictures count by their number."""
        return len(self._bytes) - self._light

    def begin_turn(self) -> None:
        """What is added from now on belongs to a turn."""
        self._turn = len(self._bytes)

    def drop_turn(self) -> None:
        """Forgets the turn: everything since it began."""
        at = self._turn
        del self._bytes[at:]
        self._starts = [start for start in self._starts if start < at]
        self._results = [result for result in self._results if result.end <= at]
        self._thoughts = [thought for thought in self._thoughts if thought[1] <= at]
        self._light = media.light(self._bytes)

    def withdraw_system(self) -> bytes:
        """Takes the last message away if it is the system's; answers its blocks, as they stood."""
        if self.role != "system":
            return b""
        start = self._starts.pop()
        blocks = bytes(self._bytes[start + len(_SYSTEM) :])
        del self._bytes[start - len(_CLOSE) :]
        return blocks

    def system_before(self, cut: int) -> list[bytes]:
        """The blocks of each system message before `cut`, as they stand."""
        ends = [start - len(_CLOSE) for start in self._starts[1:]]
        return [
            bytes(self._bytes[self._starts[number] + len(_SYSTEM) : ends[number]])
            for number in range(cut)
            if self._role_of(number) == "system"
        ]

    def replace(self, old: Result, new: Result) -> None:
        """Puts `new` where the result `old` stands in the last message, if it stands there."""
        if not self._starts:
            return
        start = self._bytes.find(old.block, self._starts[-1])
        if start < 0:
            return
        end = start + len(old.block)
        self._results = [result for result in self._results if result.start != start]
        self._splice([(start, end, new.block)])
        if (weight := len(new.block) - media.light(new.block)) >= CLEARABLE:
            self._results.append(_Clearable(start, start + len(new.block), weight, new.event_id))
            self._results.sort(key=lambda result: result.start)

    def shown(self) -> Shown:
        """Where pictures and documents are that the model has not answered yet."""
        start = self._unanswered()
        if media.SHOWN.search(self._bytes, start) is None:
            return Shown.NOWHERE
        blocks = [
            block
            for message in json.loads(b"[%b]}]" % bytes(self._bytes[start:]))
            for block in message["content"]
        ]
        said = any(block["type"] in ("image", "document") for block in blocks)
        return Shown.IN_WORDS if said else Shown.IN_RESULTS

    def withhold(self) -> None:
        """Puts notes in the place of pictures and documents that the model has not answered yet."""
        found = list(media.SHOWN.finditer(self._bytes, self._unanswered()))
        edits = [(it.start(), it.end(), content.refused(it[1].decode())) for it in found]
        self._results = [
            result
            for result in self._results
            if not any(result.start <= start < result.end for start, _, _ in edits)
        ]
        self._splice(edits)

    def clearable(self, keep: int) -> int:
        """The weight that `clear` would take away."""
        results = sum(result.weight for result in self._old_results(keep))
        return results + sum(end + 1 - start for start, end in self._old_thoughts())

    def clear(self, keep: int) -> None:
        """Puts notes in the place of old tool results, and drops the thinking of earlier turns.

        The newest `keep` results stay, and with them all that the model has not answered yet.
        """
        old, thoughts = self._old_results(keep), self._old_thoughts()
        edits = [(result.start, result.end, self._note(result)) for result in old]
        # A message never ends in a thought: a comma comes behind it.
        edits += [(start, end + 1, b"") for start, end in thoughts]
        self._results = self._results[len(old) :]
        self._thoughts = self._thoughts[len(thoughts) :]
        self._splice(sorted(edits))

    def clear_bulk(self, most: int) -> bool:
        """Puts notes in the place of all results that weigh more than `most`; whether it did.

        Also of those that the model has not answered yet.
        """
        bulk = [result for result in self._results if result.weight > most]
        edits = [(result.start, result.end, self._note(result)) for result in bulk]
        self._results = [result for result in self._results if result.weight <= most]
        self._splice(edits)
        return bool(bulk)

    def cut(self, tail: int) -> int:
        """The first message of a recent part that weighs no more than `tail`; 0 if there is none.

        A part begins where the API lets a conversation go on behind a user's words: a result stays
        with its call, and what the model has not answered yet stays whatever it weighs.
        """
        chosen = weight = 0
        end = len(self._bytes)
        answered = self._answered()
        for number in range(len(self._starts) - 1, 0, -1):
            start = self._starts[number]
            message = self._bytes[start:end]
            weight += len(message) - media.light(message)
            end = start
            if chosen and weight > tail:
                break
            if number <= answered + 1 and self._may_begin(number):
                chosen = number
        return chosen

    def compact(self, cut: int, summary: bytes) -> None:
        """Puts the block `summary`, as the user's, in the place of the messages before `cut`."""
        start = self._starts[cut]
        lead = _USER + summary
        if self._role_of(cut) == "user":
            begin, joint, starts = start + len(_USER), b",", self._starts[cut + 1 :]
        else:
            begin, joint, starts = start, _CLOSE, self._starts[cut:]
        by = len(lead) + len(joint) - begin
        self._bytes = bytearray(b"".join((lead, joint, memoryview(self._bytes)[begin:])))
        self._starts = [0, *(at + by for at in starts)]
        self._results = [
            _Clearable(it.start + by, it.end + by, it.weight, it.event_id)
            for it in self._results
            if it.start >= start
        ]
        self._thoughts = [(at + by, end + by) for at, end in self._thoughts if at >= start]
        self._turn = self._turn + by if self._turn > start else len(lead)
        self._light = media.light(self._bytes)

    def before(self, cut: int) -> Transcript:
        """The messages before `cut`, as a conversation of their own without its bulk.

        All results are notes, and pictures and documents are named only.
        """
        head = Transcript()
        end = self._starts[cut] - len(_CLOSE)
        head._bytes = self._bytes[:end]
        head._starts = self._starts[:cut]
        head._results = [result for result in self._results if result.end <= end]
        notes = [(it.start, it.end, head._note(it)) for it in head._results]
        # The thoughts about results that nobody has answered stay, as the API demands.
        newest = head._starts[head._answered()]
        thoughts = [(at, stop + 1, b"") for at, stop in self._thoughts if stop <= newest]
        head._results = []
        head._splice(sorted([*notes, *thoughts]))
        head._splice(
            [
                (it.start(), it.end(), content.withheld(it.group(1).decode()))
                for it in media.HELD.finditer(head._bytes)
            ]
        )
        return head

    def render(
        self, head: bytes, tail: bytes, *, breakpoints: int = 0, ask: bytes | None = None
    ) -> bytes:
        """The messages as the inside of a JSON array, between `head` and `tail`; copied once.

        Up to two cache breakpoints are set: at the end of the last message, and before the last
        reply, where the request that got it had its own. Together they find the cache again however
        many blocks were added between. `ask` is a block that is asked at the end of the user's
        side; it is for this request alone, so only the older breakpoint is set then.
        """
        if not self._starts:
            return b"".join((head, tail))
        role = self._role_of(-1)
        with memoryview(self._bytes) as view:
            parts: list[bytes | memoryview] = [head]
            at = 0
            # An assistant's last block may be one that takes no breakpoint.
            last = breakpoints >= 1 and role != "assistant" and ask is None
            if breakpoints > last and (answered := self._answered()):
                at = self._starts[answered] - len(_CLOSE)
                parts += [view[: at - 1], CACHE_CONTROL]
            if last:
                parts += [view[at:-1], CACHE_CONTROL]
            elif ask is not None and role == "system":
                # The system's word is the last one, behind all of the user's.
                joint = self._starts[-1] - len(_CLOSE)
                parts += [view[at:joint], b",", ask, view[joint:]]
            else:
                parts.append(view[at:])
                if ask is not None:
                    parts += [b"," if role == "user" else _CLOSE + _USER, ask]
            parts += [b"]}", tail]
            return b"".join(parts)

    def dump(
        self,
    ) -> tuple[bytes, list[int], list[tuple[int, int, int, str]], list[tuple[int, int]], int, int]:
        """Everything it holds, in plain values."""
        results = [(it.start, it.end, it.weight, it.event_id) for it in self._results]
        return (
            bytes(self._bytes),
            list(self._starts),
            results,
            list(self._thoughts),
            self._turn,
            self._light,
        )

    @classmethod
    def load(
        cls,
        dump: tuple[
            bytes, list[int], list[tuple[int, int, int, str]], list[tuple[int, int]], int, int
        ],
    ) -> Transcript:
        """The transcript that `dump` has told of."""
        transcript = cls()
        held, starts, results, thoughts, transcript._turn, transcript._light = dump
        transcript._bytes = bytearray(held)
        transcript._starts = list(starts)
        transcript._results = [_Clearable(*result) for result in results]
        transcript._thoughts = [(start, end) for start, end in thoughts]
        return transcript

    def _role_of(self, number: int) -> Role:
        return _ROLES[self._bytes[self._starts[number] + _ROLE_AT]]

    def _may_begin(self, number: int) -> bool:
        role = self._role_of(number)
        if role == "user":
            return not self._bytes.startswith(_RESULT, self._starts[number] + len(_USER))
        return role == "assistant"

    def _unanswered(self) -> int:
        """Where the messages begin that the model has not answered yet."""
        answered = self._answered()
        following = self._starts[answered + 1 :] if answered else self._starts
        return following[0] if following else len(self._bytes)

    def _answered(self) -> int:
        """The number of the newest reply; 0 if there is none."""
        for number in range(len(self._starts) - 1, 0, -1):
            if self._role_of(number) == "assistant":
                return number
        return 0

    def _old_results(self, keep: int) -> list[_Clearable]:
        known = self._results[: max(0, len(self._results) - keep)]
        answered = self._starts[self._answered()] if self._starts else 0
        return [result for result in known if result.end <= answered]

    def _old_thoughts(self) -> list[tuple[int, int]]:
        # Words that came instead of an answer begin a turn among the results of the one before,
        # and the API still demands what was thought about those, also once the turn was dropped.
        before = bisect_left(self._starts, self._turn)
        while before and self._role_of(before - 1) != "assistant":
            before -= 1
        bound = self._starts[before - 1] if before else 0
        return [thought for thought in self._thoughts if thought[0] < bound]

    def _note(self, result: _Clearable) -> bytes:
        block = bytes(self._bytes[result.start : result.end])
        found = _RESULT_ID.match(block)
        call_id = found.group(1) if found else b""
        failed = block.endswith(b',"is_error":true}')
        return content.cleared_result(call_id, result.event_id, len(block), is_error=failed)

    def _splice(self, edits: list[tuple[int, int, bytes]]) -> None:
        """Exchanges parts of the buffer, given in order, and moves everything behind them along."""
        if not edits:
            return
        ends, moves = [-1], [0]
        pieces: list[bytes | bytearray] = []
        at = shift = 0
        for start, end, new in edits:
            pieces += [self._bytes[at:start], new]
            at = end
            shift += len(new) - (end - start)
            ends.append(end)
            moves.append(shift)
        pieces.append(self._bytes[at:])
        self._bytes = bytearray(b"".join(pieces))

        def moved(offset: int) -> int:
            return offset + moves[bisect_right(ends, offset) - 1]

        self._starts = [moved(start) for start in self._starts]
        self._turn = moved(self._turn)
        self._results = [
            _Clearable(moved(it.start), moved(it.start) + it.end - it.start, it.weight, it.event_id)
            for it in self._results
        ]
        self._thoughts = [
            (moved(start), moved(start) + end - start) for start, end in self._thoughts
        ]
        self._light = media.light(self._bytes)
