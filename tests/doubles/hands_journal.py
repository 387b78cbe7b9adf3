"""The journal in memory: the same promises, but for durability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.context import current_call
from services.hands.domain import fence
from services.hands.domain.execution import Begun, Record, Step, begin, cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drover.hands.v1.hands_service_pb2 import ExecuteResponse


class MemoryJournal:
    """The `Journal` port over dictionaries. `commits` counts what would have been fsynced."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], Record] = {}
        self.fences: dict[str, int] = {}
        self.owners: dict[str, str] = {}
        self.ended: dict[int, int] = {}
        self.commits = 0

    async def begin(self, session_id: str, call_id: str, generation: int, tool: str) -> Begun:
        self._advance(session_id, generation)
        begun = begin(self.calls.get((session_id, call_id)), tool, generation)
        if begun.step is Step.RUN or not begun.replayed:
            self.calls[session_id, call_id] = begun.record
        return begun

    async def finish(self, session_id: str, call_id: str, result: ExecuteResponse) -> None:
        self.commits += 1
        found = self.calls.get((session_id, call_id))
        if found is not None and found.result is None:
            record = Record(found.tool, found.generation, found.starts, result)
            self.calls[session_id, call_id] = record

    async def forget(self, session_id: str, call_id: str) -> None:
        self.commits += 1
        found = self.calls.get((session_id, call_id))
        if found is not None and found.result is None:
            del self.calls[session_id, call_id]

    async def ran(self, session_id: str, tool: str, *, besides: str) -> bool:
        return any(
            session == session_id and call != besides and record.tool == tool and record.starts
            for (session, call), record in self.calls.items()
        )

    async def cancel(self, session_id: str, generation: int, call_ids: Sequence[str]) -> None:
        self._advance(session_id, generation)
        for call_id in call_ids:
            tombstone = Record("", generation, starts=0, result=cancelled())
            self.calls.setdefault((session_id, call_id), tombstone)

    async def fence(
        self, session_id: str, generation: int, taken: Callable[[], None] | None = None
    ) -> None:
        self._advance(session_id, generation)
        if taken is not None:
            taken()

    async def end(self, session_id: str, generation: int) -> None:
        gone = session_id not in self.fences and self.ended.get(hash(session_id))
        if gone != generation + 1:
            self._advance(session_id, generation + 1)

    async def purge(self, session_id: str, generation: int) -> None:
        self.commits += 1
        self.ended.pop(hash(session_id), None)
        if generation:
            self.ended[hash(session_id)] = generation + 1
        self.fences.pop(session_id, None)
        self.owners.pop(session_id, None)
        self.calls = {key: row for key, row in self.calls.items() if key[0] != session_id}

    async def owner(self, session_id: str) -> str:
        return self.owners.get(session_id, "")

    def _advance(self, session_id: str, generation: int) -> None:
        self.commits += 1
        workspace = current_call().workspace_id
        fence.check_workspace(session_id, self.owners.get(session_id, ""), workspace)
        highest = self.fences.get(session_id, self.ended.get(hash(session_id), 0))
        self.fences[session_id] = fence.advance(highest, generation)
        self.owners.setdefault(session_id, workspace)
