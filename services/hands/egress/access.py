"""One hand's way out: whose it is at the moment, and what the sandbox is told of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError, Reason
from services.hands.egress import refusal
from services.hands.egress.refusal import RefusedError
from services.hands.egress.variables import placeholders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chassis.secret import Secret
    from drover.event.v1.session_event_pb2 import SessionError
    from services.hands.backends.port import WayOut
    from services.hands.domain.repository import Repository
    from services.hands.egress.grants import Grant, Grants
    from services.hands.egress.listener import Listener
    from services.hands.egress.place import Place

    Change = Callable[[Mapping[str, str]], None]
    """Tells the sandbox the variables of its session, in the place of those told before."""

_REFUSED: Final = frozenset({Reason.NOT_FOUND, Reason.ARCHIVED, Reason.PERMISSION_DENIED})
_BEGIN_SECONDS: Final = 0.005
"""Whoever has asked for the hand is to be answered first; a first command does not wait for it."""
_AGAIN_SECONDS: Final = 0.5
"""How long a command waits for a grant that is renewed, or could not be had before."""

_log = structlog.get_logger("hands.egress")


class Access:
    """The way out of one sandbox, which serves no session before `assign`.

    What the session's grant brings along is told to the sandbox before anything is relayed by it.
    """

    def __init__(
        self, hand_id: str, place: Place, grants: Grants, tasks: asyncio.TaskGroup
    ) -> None:
        self._hand_id = hand_id
        self._place = place
        self._grants = grants
        self._tasks = tasks
        self._listener: Listener | None = None
        self._expected = ""
        self._session_id = ""
        self._change: Change | None = None
        self._told: Grant | None = None
        self._telling = asyncio.Lock()
        self._tried = False
        self._closed = False

    @property
    def way_out(self) -> WayOut:
        """What the sandbox is given of the host."""
        return self._place.way_out

    @property
    def problems(self) -> Sequence[SessionError]:
        """What the session cannot use as things are."""
        return self._told.problems if self._told is not None else ()

    @property
    def repositories(self) -> Sequence[Repository] | None:
        """The session's; `None` as long as they are not known."""
        return self._told.repositories if self._told is not None else None

    def listen(self, listener: Listener) -> None:
        """Takes charge of the hand's listener."""
        self._listener = listener

    def expect(self, session_id: str) -> None:
        """Opens a session's grant while the sandbox that will serve it is being made."""
        if session_id:
            self._expected = session_id
            opening = self._grants.expect(session_id, self._hand_id)
            self._tasks.create_task(opening, name=f"access {self._hand_id}")

    def assign(self, session_id: str, change: Change) -> None:
        """Has it serve a session and no other, from now on; its grant is opened soon."""
        if self._closed:
            return
        if self._session_id:
            self._leave()
        self._session_id, self._change, self._expected = session_id, change, ""
        # A program may connect before `_begin`: a listener's own call has no workspace.
        self._grants.hold(session_id, self._hand_id)
        self._tasks.create_task(self._begin(), name=f"access {self._hand_id}")

    @property
    def settled(self) -> bool:
        """Whether `ready` has nothing to do."""
        return self._told is not None and self._grants.fresh(self._told)

    async def ready(self) -> None:
        """Waits until the sandbox has been told what goes with the session's grant as of now.

        No longer than the vault proxy may take, the first time; from then on only a moment. A
        command runs all the same then, with what is known: what it connects to may be refused.
        """
        with suppress(DroverError, RefusedError, TimeoutError):
            async with asyncio.timeout(_AGAIN_SECONDS if self._tried else None):
                await self._open(renewed=True)

    async def allow(self) -> Secret:
        """The grant to begin a connection with. Raises `RefusedError`."""
        try:
            return (await self._open()).text
        except DroverError as error:
            no = refusal.no_access if error.reason in _REFUSED else refusal.no_grant
            raise RefusedError(no(error.message)) from error

    def close(self) -> None:
        """Ends it with its sandbox."""
        if self._closed:
            return
        self._closed = True
        self._leave()
        if self._listener is not None:
            self._listener.close()
        self._place.remove()

    def _leave(self) -> None:
        for session_id in filter(None, (self._session_id, self._expected)):
            self._grants.drop(session_id, self._hand_id)
        if self._listener is not None:
            self._listener.cut()
        self._session_id, self._change, self._told, self._tried = "", None, None, False

    async def _begin(self) -> None:
        try:
            await asyncio.sleep(_BEGIN_SECONDS)
            await self.ready()
        except Exception:  # noqa: BLE001  # whatever it is, the other hands go on
            _log.exception("access_not_opened", hand_id=self._hand_id)

    async def _open(self, *, renewed: bool = False) -> Grant:
        session_id = self._session_id
        if not session_id:
            raise RefusedError(refusal.NO_SESSION)
        try:
            grant = await self._grants.current(session_id, self._hand_id, renewed=renewed)
        finally:
            if self._session_id == session_id:
                self._tried = True
        if grant is not self._told:
            await self._tell(session_id, grant)
        return grant

    async def _tell(self, session_id: str, grant: Grant) -> None:
        """Has the sandbox know what goes with a grant. Raises `RefusedError` if it is another's."""
        async with self._telling:
            if self._session_id != session_id or self._change is None:
                raise RefusedError(refusal.NO_SESSION)
            told = self._told
            if grant is told:
                return
            if told is None or told.ca_certificate != grant.ca_certificate:
                try:
                    await asyncio.to_thread(self._place.trust, grant.ca_certificate)
                except OSError as error:
                    if self._closed:
                        raise RefusedError(refusal.NO_SESSION) from error
                    text = f"the session's certificates could not be written: {error.strerror}"
                    raise RefusedError(refusal.no_grant(text)) from error
                if self._session_id != session_id:
                    raise RefusedError(refusal.NO_SESSION)
            if told is None or told.variables != grant.variables:
                shown = placeholders(grant.variables)
                if left_out := sorted(grant.variables.keys() - shown.keys()):
                    _log.warning("no_variables", session_id=session_id, names=left_out)
                self._change(shown)
            self._told = grant
