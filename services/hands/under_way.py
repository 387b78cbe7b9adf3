"""What a hands process knows of the calls that it is running, and of whose they are."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

from chassis.context import current_call
from services.hands.domain import fence, mounts
from services.hands.following import Audience

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from drover.hands.v1.hands_service_pb2 import ExecuteResponse
    from services.hands.domain.recipe import Recipe
    from services.hands.hand import Hand

T = TypeVar("T")


class Stopped(Exception):  # noqa: N818  # a thing that happens
    """The call was cancelled before its tool ran."""


class Execution:
    """A call under way. `generation` is the newest that asks for it; `hand` runs its tool.

    `name` and `where` are the hand's name in its session and its address, `given` what is brought
    into it. What is to be done when the result was recorded is in `after`.
    """

    def __init__(
        self,
        call_id: str,
        generation: int,
        recipe: Recipe,
        *,
        name: str,
        where: str,
        given: mounts.Mounts = mounts.NONE,
    ) -> None:
        self.call_id = call_id
        self.recipe = recipe
        self.generation = generation
        self.workspace_id = current_call().workspace_id
        self.name = name
        self.where = where
        self.given = given
        self.stop = asyncio.Event()
        self.hand: Hand | None = None
        self.audience = Audience()
        self.after: list[Callable[[], Awaitable[None]]] = []
        self.result: asyncio.Future[ExecuteResponse] = asyncio.get_running_loop().create_future()
        # Its callers may all be gone when it fails.
        self.result.add_done_callback(lambda done: done.cancelled() or done.exception())

    def tell_hand(self) -> None:
        """Tells the hand that runs it, if one does, whether anybody follows."""
        if self.hand is not None:
            self.hand.follow(self.call_id, self.audience.put if self.audience else None)


class Session:
    """What this process knows of a session while it is at work for it.

    `generation` is a lower bound of the journal's fence: what is older is refused unasked, as is
    who calls for another workspace than `workspace_id`, once that is known. `shells`
    are locked while a command runs, by the hand's name; `provisions` counts who waits for it.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.workspace_id = ""
        self.shells: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.calls: dict[str, Execution] = {}
        self.provisions: Counter[str] = Counter()

    def check_workspace(self, session_id: str) -> None:
        """Raises NOT_FOUND for a call that is made for another workspace."""
        fence.check_workspace(session_id, self.workspace_id, current_call().workspace_id)

    def take(self, generation: int) -> None:
        """Knows what the journal knows: a generation that it has taken, of who calls."""
        self.generation = max(self.generation, generation)
        self.workspace_id = current_call().workspace_id

    def calls_in(self, hand: str) -> list[Execution]:
        """The calls under way in a hand, or on their way to it."""
        return [call for call in self.calls.values() if call.name == hand]


async def unless_stopped(under_way: Execution, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns, unless the call is stopped first. Raises `Stopped`."""
    task = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(under_way.stop.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        stop.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    raise Stopped


async def all_ended(calls: Iterable[Execution]) -> None:
    """Waits for calls to end."""
    results = [call.result for call in calls]
    if results:
        await asyncio.wait(results)
