"""What a transaction leaves for others to hear of, once it is durable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drover.event.v1 import event_pb2
    from drover.session.v1 import lease_pb2
    from services.session.domain.session import SessionRef


@dataclass(frozen=True, slots=True)
class News:
    """Told to the feed, to the lease's stream and to the dispatcher after the commit.

    `stamped` events are in the log, `echoes` wait in the inbox, the last of them at `inbox_tail`.
    `input` is what waits for the brain, `None` where a brain brought the news itself. `wake` says
    that the session needs a brain and has none, `generation` is its lease's. `ends` closes the
    session's streams; `opened` says that the lease was taken, `released` that nobody holds it,
    `fenced` that its holder has lost it. `work` is the environment in which work was queued for the
    session, empty where none was.
    """

    ref: SessionRef
    stamped: list[event_pb2.Event] = field(default_factory=list)
    echoes: list[event_pb2.Event] = field(default_factory=list)
    inbox_tail: int = 0
    input: lease_pb2.InputWaiting | None = None
    wake: bool = False
    generation: int = 0
    ends: bool = False
    deleted: bool = False
    opened: bool = False
    released: bool = False
    fenced: bool = False
    work: str = ""
