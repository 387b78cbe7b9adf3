"""The service, put together from its parts."""

from __future__ import annotations

from services.session.rpc.events import EventsRpc
from services.session.rpc.fork import ForkRpc
from services.session.rpc.lease import LeaseRpc
from services.session.rpc.lists import ListsRpc
from services.session.rpc.sessions import SessionsRpc
from services.session.rpc.stream import StreamRpc
from services.session.rpc.threads import ThreadsRpc
from services.session.rpc.transfer import TransferRpc


class SessionRpc(
    SessionsRpc, ListsRpc, ThreadsRpc, EventsRpc, StreamRpc, LeaseRpc, ForkRpc, TransferRpc
):
    """SessionService. Each parent answers the methods of one concern."""
