"""What every part of the service works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from chassis.context import current_call
from services.session.domain.ports import TimeRange
from services.session.domain.session import MICROS, SessionRef

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from google.protobuf.timestamp_pb2 import Timestamp

    from catalogue.models import Catalogue
    from chassis.ids import IdSource
    from drover.session.v1 import preview_pb2
    from services.session.clients.files import Files
    from services.session.clients.memory import MemoryStores
    from services.session.clients.registry import Registry
    from services.session.clients.vaults import Vaults
    from services.session.commits import Commits
    from services.session.copying import Copying
    from services.session.domain.checkpoints import CheckpointStore
    from services.session.domain.cursor import Cursors
    from services.session.domain.ports import SessionStore
    from services.session.feed import Feed
    from services.session.leases import Leases


_FAR = 1 << 62

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Parts:
    """The service's own parts, put together in `main`.

    `preview` shows a glimpse of an event to all who follow its session. A reader of a stream that
    takes nothing for `stuck_seconds` is disconnected. `files_due` is called when there are files to
    delete.
    """

    store: SessionStore
    checkpoints: CheckpointStore
    commits: Commits
    copying: Copying
    feed: Feed
    preview: Callable[[str, preview_pb2.Preview], None]
    leases: Leases
    registry: Registry
    vaults: Vaults
    files: Files
    memory_stores: MemoryStores
    models: Catalogue
    cursors: Cursors
    ids: IdSource
    stuck_seconds: float
    git_hosts: Collection[str]
    files_due: Callable[[], None]


def ref(session_id: str) -> SessionRef:
    """A session in the caller's workspace."""
    return SessionRef(current_call().workspace_id, session_id)


def time_range(
    *, gt: Timestamp | None, gte: Timestamp | None, lt: Timestamp | None, lte: Timestamp | None
) -> TimeRange:
    """Four bounds in nanoseconds as one closed range of whole microseconds."""
    lows = [_floor(gt) + 1 if gt else None, _ceiling(gte) if gte else None]
    highs = [_ceiling(lt) - 1 if lt else None, _floor(lte) if lte else None]
    return TimeRange(
        max((low for low in lows if low is not None), default=None),
        min((high for high in highs if high is not None), default=None),
    )


def _floor(time: Timestamp) -> int:
    return _within(time.seconds * MICROS + time.nanos // 1000)


def _ceiling(time: Timestamp) -> int:
    return _within(time.seconds * MICROS - (-time.nanos // 1000))


def _within(micros: int) -> int:
    """A time that every database can compare with: what lies beyond is as good as its edge."""
    return max(-_FAR, min(micros, _FAR))
