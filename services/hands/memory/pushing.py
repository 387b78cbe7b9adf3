"""Tells a store what has changed in its directory, each change under its precondition."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.errors import DroverError, Reason
from services.hands.domain.memory import words
from services.hands.domain.memory.known import Known, Refusal
from services.hands.domain.memory.push import Create, Delete, Rename, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drover.memory.v1.memory_pb2 import Memory
    from drover.memory.v1.memory_service_pb2 import StoreChanges
    from services.hands.domain.memory.known import StoreState
    from services.hands.domain.memory.push import Step
    from services.hands.domain.memory.words import Notice

_AT_ONCE: Final = 8
_LASTING: Final = frozenset(
    {Reason.INVALID_ARGUMENT, Reason.PERMISSION_DENIED, Reason.REQUEST_TOO_LARGE, Reason.NOT_FOUND}
)
_MOVED_ON: Final = frozenset({Reason.CONFLICT, Reason.ALREADY_EXISTS, Reason.NOT_FOUND})

_log = structlog.get_logger("hands.memory")


class Memories(Protocol):
    """The stores. Everything raises `DroverError`, soon."""

    async def follow(self, stores: Sequence[tuple[str, int]]) -> Sequence[StoreChanges]:
        """What has changed in stores, each since a revision."""
        ...

    async def create(self, store_id: str, path: str, text: str, session_id: str) -> Memory:
        """Stores a new one."""
        ...

    async def update(
        self,
        store_id: str,
        memory_id: str,
        expected: str,
        session_id: str,
        *,
        path: str | None = None,
        text: str | None = None,
    ) -> Memory:
        """Changes one whose content has the digest that is expected."""
        ...

    async def delete(self, store_id: str, memory_id: str, expected: str, session_id: str) -> None:
        """Deletes one whose content has the digest that is expected."""
        ...


@dataclass(slots=True)
class Pushed:
    """What came of it.

    `overtaken`: the store has moved on, and what is left is to be looked at again. `waiting` are
    the paths of which it could not be told, since it could not be reached. `late`: it did not
    answer in time.
    """

    notices: list[Notice] = field(default_factory=list)
    overtaken: bool = False
    waiting: list[str] = field(default_factory=list)
    late: bool = False


class Pushing:
    """Pushes the changes of one store's directory. `final`: what is overtaken is refused.

    `text_of` reads a file, by its path and its digest; None is of one that has changed. It blocks.
    """

    def __init__(
        self,
        memories: Memories,
        state: StoreState,
        session_id: str,
        place: str,
        *,
        text_of: Callable[[str, str], str | None],
        final: bool,
    ) -> None:
        self._memories = memories
        self._state = state
        self._session_id = session_id
        self._place = place
        self._text_of = text_of
        self._final = final
        self._pushed = Pushed()
        self._away = False

    async def push(self, steps: Sequence[Step], until: float) -> Pushed:
        """Takes the steps in their order; none after `until`, by the loop's clock."""
        for kind in (Delete, Rename, Update | Create):
            room = asyncio.Semaphore(1 if kind is Rename else _AT_ONCE)
            async with asyncio.TaskGroup() as tasks:
                for step in steps:
                    if isinstance(step, kind):
                        tasks.create_task(self._step(step, room, until))
        return self._pushed

    async def _step(self, step: Step, room: asyncio.Semaphore, until: float) -> None:
        async with room:
            if self._away or asyncio.get_running_loop().time() > until:
                self._pushed.waiting.append(step.path)
                return
            if self._refused_unasked(step):
                return
            try:
                await self._tell(step)
            except DroverError as error:
                self._failed(step, error)

    async def _tell(self, step: Step) -> None:
        state, memories, session_id = self._state, self._memories, self._session_id
        store_id, path = state.store_id, step.path
        if isinstance(step, Delete):
            known = step.known
            try:
                await memories.delete(store_id, known.memory_id, known.sha256, session_id)
            except DroverError as error:
                if error.reason is not Reason.NOT_FOUND:
                    raise
            state.memories.pop(path, None)
            # There may be room again for what was refused.
            lasting = {at: one for at, one in state.refused.items() if one.lasting}
            self._pushed.overtaken |= len(lasting) < len(state.refused)
            state.refused = lasting
            return
        if isinstance(step, Rename):
            known = step.known
            memory = await memories.update(
                store_id, known.memory_id, known.sha256, session_id, path=path
            )
            state.memories.pop(step.old, None)
        else:
            text = await asyncio.to_thread(self._text_of, path, step.content.sha256)
            if text is None:
                state.sent.pop(path, None)
                self._pushed.overtaken = True
                return
            if isinstance(step, Create):
                memory = await memories.create(store_id, path, text, session_id)
            else:
                known = step.known
                memory = await memories.update(
                    store_id, known.memory_id, known.sha256, session_id, text=text
                )
        state.memories[path] = Known(memory.id, step.content.sha256, seen=step.content.seen)
        state.sent.pop(path, None)
        state.told.pop(path, None)

    def _refused_unasked(self, step: Step) -> bool:
        """Whether it is known that the store does not take it."""
        state = self._state
        if state.gone:
            self._refuse(step, words.GONE, lasting=True)
        elif state.archived:
            self._refuse(step, words.ARCHIVED, lasting=True)
        else:
            return False
        return True

    def _failed(self, step: Step, error: DroverError) -> None:
        if error.reason is Reason.ARCHIVED:
            self._state.sent.pop(step.path, None)
            self._refuse(step, words.ARCHIVED, lasting=True)
        elif error.reason in _MOVED_ON and not self._final:
            self._state.sent.pop(step.path, None)
            self._pushed.overtaken = True
        elif error.reason in _MOVED_ON or error.reason in _LASTING:
            self._state.sent.pop(step.path, None)
            self._refuse(step, f"{error.message.rstrip('.')}.", lasting=False)
        else:
            _log.info("memory_waits", reason=error.reason)
            self._away = True
            self._pushed.late |= error.reason is Reason.DEADLINE_EXCEEDED
            self._pushed.waiting.append(step.path)

    def _refuse(self, step: Step, why: str, *, lasting: bool) -> None:
        """Leaves the store as it is. What it has there is then none of this directory's."""
        state, path = self._state, step.path
        if isinstance(step, Delete):
            state.memories.pop(path, None)
            if not state.gone:
                self._pushed.notices.append(words.not_deleted(self._place, path, why))
            return
        if isinstance(step, Rename):
            state.memories.pop(step.old, None)
        state.refused[path] = Refusal(step.content.seen, lasting)
        if state.tell_once(path, why, step.content.sha256):
            self._pushed.notices.append(words.not_stored(self._place, path, why))
