"""One session over the store in memory, moved by hand: what the domain's tests play with."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from drover.session.v1 import lease_pb2
from services.session.domain import holding, lifecycle, update
from services.session.domain.accept import accept
from services.session.domain.append import Holder, append
from services.session.domain.listing import EventsQuery, list_events
from services.session.domain.session import SessionDetails, SessionRef
from tests.doubles.session_registry import FakeAgents, FakeEnvironments
from tests.doubles.session_store import MemoryStore

WORKSPACE = "wrkspc_default"


class ManualClock:
    """Time that moves when it is told to."""

    def __init__(self):
        self._now = datetime(2026, 11, 29, 12, tzinfo=UTC)

    def now(self):
        return self._now

    def monotonic(self):
        return self._now.timestamp()

    def move(self, seconds):
        self._now += timedelta(seconds=seconds)


def counting_ids():
    """Ids that sort as they are made: `sevt_000001`."""
    numbers = itertools.count(1)
    return lambda prefix: f"{prefix}_{next(numbers):06}"


def details(*, self_hosted=False, **fields):
    environment = FakeEnvironments().environment.config
    if self_hosted:
        environment.self_hosted.SetInParent()
    return SessionDetails(
        environment_id="env_1", agent=FakeAgents().agent, environment=environment, **fields
    )


def takes_system(model_id):
    """What the tests' models do: all but one take system messages mid-conversation."""
    return model_id != "old-model"


class World:
    """A store, a clock and one session, with the domain's operations in short form.

    The store is one in memory, or any with its `run`.
    """

    def __init__(self, *initial, store=None, ids=None, **fields):
        self.clock = ManualClock()
        self.ids = counting_ids() if ids is None else ids
        self.store = MemoryStore(self.clock) if store is None else store
        self.news = []
        made = details(**fields)
        created = self.do(lambda tx: lifecycle.create(tx, WORKSPACE, made, initial, self.ids))
        self.ref = created.state.ref
        self.sent_seq = 0

    def do(self, fn):
        value, news = self.store.run(fn)
        if news is not None:
            self.news.append(news)
        return value

    @property
    def state(self):
        return self.store.run(lambda tx: tx.state(self.ref), keep=False)

    @property
    def log(self):
        return [event for event in self.events() if event.seq]

    def events(self, **query):
        query.setdefault("limit", 1000)
        return self.page(None, **query).events

    def page(self, place=None, **query):
        query = EventsQuery(**query)
        return self.store.run(lambda tx: list_events(tx, self.ref, query, place), keep=False)

    def accept(self, *events):
        def fn(tx):
            accepted = accept(tx, self.ref, events, self.ids, takes_system)
            return accepted.events, accepted.news

        return self.do(fn)

    def open(self, generation=0, holder="brain", after_seq=0):
        request = lease_pb2.OpenLease(
            session_id=self.ref.session_id,
            holder=holder,
            generation=generation,
            after_seq=after_seq,
        )

        def fn(tx):
            opened = holding.open_lease(tx, self.ref, request, (), self.ids)
            return opened, opened.news

        opened = self.do(fn)
        self.sent_seq = opened.snapshot.state.head_seq
        return opened.snapshot.state.generation

    def append(self, generation, *events, **more):
        """One append; raises its refusal."""
        result = self.appends(generation, lease_pb2.AppendEvents(events=events, **more))
        if result.refusal is not None:
            raise result.refusal
        return result.acknowledged[0]

    def appends(self, generation, *requests):
        holder = Holder(self.ref, generation, self.sent_seq)

        def fn(tx):
            result = append(tx, holder, requests, self.ids)
            return result, result.news

        result = self.do(fn)
        self.sent_seq = result.sent_seq
        return result

    def abandon(self, generation):
        return self.do(lambda tx: holding.abandon(tx, self.ref, generation))

    def archive(self):
        return self.do(lambda tx: lifecycle.archive(tx, self.ref, self.ids))

    def delete(self):
        return self.do(lambda tx: (None, lifecycle.delete(tx, self.ref)))

    def update(self, request, **revision):
        change = update.Change(request, **revision)
        return self.do(lambda tx: update.update(tx, self.ref, change, self.ids))


def kinds(events):
    """The variants of events, to compare logs by."""
    return [event.WhichOneof("payload") for event in events]


def other_workspace(ref):
    """The same session as another workspace would name it."""
    return SessionRef("wrkspc_other", ref.session_id)
