"""What this replica of the service and the others tell each other (notice.proto).

Hints only: what is told has been committed, and whoever misses it finds it by looking. Previews
alone are nowhere else; one of which anything was lost ends there.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from google.protobuf.message import DecodeError

from drover.session.v1 import notice_pb2
from services.session.previews import PreviewRelay
from storage.notices import MAX_PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chassis.clock import Clock
    from drover.session.v1 import preview_pb2
    from services.session.domain.news import News
    from services.session.feed import Feed
    from storage.notices import Notices

HELLO_SECONDS: Final = 3.0
"""How often a replica says that it is there, and which previews it wants."""

_FORGET_SECONDS: Final = 10.0
_PREVIEW_SECONDS: Final = 0.03
_MAX_CHANGES: Final = 10_000
_MAX_BYTES: Final = MAX_PAYLOAD // 4 * 3
"""Of a notice in wire form: it travels in base64."""

_log = structlog.get_logger("session.peers")


class Lookout(Protocol):
    """Who looks at what others have changed. Its methods must not wait."""

    def look(self, changes: Iterable[notice_pb2.SessionChange]) -> None:
        """Another replica has changed something."""
        ...

    def look_everywhere(self) -> None:
        """Other replicas may have changed anything."""
        ...

    def look_at(self, session_id: str) -> None:
        """Something of a session was missed."""
        ...


@dataclass(slots=True)
class _Peer:
    """Another replica, the number of the last notice heard of it, and when that was."""

    number: int
    heard: float


class Peers:
    """This replica among the others: `storage.notices.Party`, and a listener to commits."""

    def __init__(
        self, replica: str, notices: Notices, feed: Feed, lookout: Lookout, clock: Clock
    ) -> None:
        self._replica = replica
        self._notices = notices
        self._feed = feed
        self._lookout = lookout
        self._clock = clock
        self._number = 0
        self._peers: dict[str, _Peer] = {}
        self._changes: dict[str, notice_pb2.SessionChange] = {}
        self._wanted: set[str] = set()
        self._hello = False
        self._relay = PreviewRelay(clock)
        self._flush: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Speaks and listens until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._notices.run(self))
            while True:
                self._greet()
                await asyncio.sleep(HELLO_SECONDS)
                self._forget()

    # what happens here

    def hear(self, news: News) -> None:
        """Tells the others of a commit."""
        if not self._peers:
            return
        self._relay.hear(news)
        grown = bool(news.stamped or news.echoes or news.ends)
        lease = news.opened or news.released or news.fenced
        if not grown and not lease and not news.work:
            return
        session_id = news.ref.session_id
        change = self._changes.get(session_id)
        if change is None:
            if len(self._changes) >= _MAX_CHANGES:
                return  # they will see
            change = self._changes[session_id] = notice_pb2.SessionChange(session_id=session_id)
        change.grown |= grown
        change.input |= news.input is not None or news.fenced
        change.lease |= lease
        change.work = news.work or change.work
        self._notices.ring()

    def preview(self, session_id: str, preview: preview_pb2.Preview) -> None:
        """Shows a glimpse of an event to those who follow it, wherever they do."""
        self._feed.preview(session_id, preview)
        if self._relay.add(session_id, preview) and self._flush is None:
            loop = asyncio.get_running_loop()
            self._flush = loop.call_later(_PREVIEW_SECONDS, self._notices.ring)

    def fetch(self, session_id: str) -> None:
        """See `feed.Elsewhere`."""
        self._lookout.look_at(session_id)

    def wants_previews(self, session_id: str) -> bool:
        """See `feed.Elsewhere`."""
        return self._relay.wants(session_id)

    def want_previews(self, session_id: str) -> None:
        """See `feed.Elsewhere`."""
        if self._peers:
            self._wanted.add(session_id)
            self._notices.ring()

    # what is said

    def compose(self) -> Sequence[str]:
        """What is to be said now."""
        parcel = _Parcel(self._replica, self._number)
        if self._hello:
            self._hello = False
            parcel.greet()
        for session_id in self._wanted:
            parcel.add("wanted", session_id, len(session_id))
        # Before the changes: an event ends its preview.
        for preview in self._relay.take():
            parcel.add("previews", preview, preview.ByteSize())
        for change in self._changes.values():
            parcel.add("changes", change, change.ByteSize())
        self._wanted.clear()
        self._changes.clear()
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        self._number = parcel.number
        return [base64.b64encode(one.SerializeToString()).decode() for one in parcel.notices]

    def _greet(self) -> None:
        self._hello = True
        if self._peers:
            self._wanted.update(self._feed.wanted_previews())
        self._notices.ring()

    def _forget(self) -> None:
        since = self._clock.monotonic() - _FORGET_SECONDS
        for name in [one for one, peer in self._peers.items() if peer.heard < since]:
            del self._peers[name]
            _log.info("peer_gone", peer=name)
        self._relay.prune()

    # what is heard

    def joined(self) -> None:
        """What was said until now may have been missed."""
        self._missed()
        for peer in self._peers.values():
            peer.number = 0
        self._greet()

    def heard(self, notice: str) -> None:
        """Takes in what someone has said."""
        try:
            said = notice_pb2.Notice.FromString(base64.b64decode(notice, validate=True))
        except (binascii.Error, DecodeError):
            _log.warning("notice_unreadable")
            return
        if said.replica in {"", self._replica}:
            return
        self._note(said)
        self._relay.want(said.wanted)
        self._feed.want_previews(said.wanted)
        for one in said.previews:
            self._feed.relay(one.session_id, one.preview)
        if said.changes:
            self._lookout.look(said.changes)

    def _note(self, notice: notice_pb2.Notice) -> None:
        """Takes down that a replica has spoken, and whether it spoke unheard before."""
        peer = self._peers.get(notice.replica)
        now = self._clock.monotonic()
        if peer is None:
            self._peers[notice.replica] = _Peer(notice.number, now)
            _log.info("peer_found", peer=notice.replica)
            self._greet()  # for it may not know of this one
            return
        if peer.number and notice.number != peer.number + 1:
            self._missed()
        peer.number, peer.heard = notice.number, now

    def _missed(self) -> None:
        self._feed.break_relayed()
        self._lookout.look_everywhere()


class _Parcel:
    """Notices that hold what they were given, in its order."""

    def __init__(self, replica: str, number: int) -> None:
        self.notices: list[notice_pb2.Notice] = []
        self.number = number
        self._replica = replica
        self._size = 0

    def greet(self) -> None:
        """Makes a notice, be there anything to say or not."""
        self.number += 1
        notice = notice_pb2.Notice(replica=self._replica, number=self.number)
        self.notices.append(notice)
        self._size = notice.ByteSize()

    def add(self, field: str, item: object, size: int) -> None:
        """Adds an item of `size` bytes to one of the notice's lists."""
        size += 4  # its tag and its length
        if not self.notices or self._size + size > _MAX_BYTES:
            self.greet()
        self._size += size
        getattr(self.notices[-1], field).append(item)
