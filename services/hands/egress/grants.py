"""Session grants, as hands hold them: in memory only, one per session and hand."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.context import CallContext, call_context, current_call
from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chassis.clock import Clock
    from chassis.secret import Secret
    from drover.event.v1.session_event_pb2 import SessionError
    from services.hands.domain.repository import Repository

_PAUSE: Final = 0.5
"""Seconds after a failure in which it stands for the next attempt."""

_MANY: Final = 1000
_PASSING: Final = frozenset({Reason.UNAVAILABLE, Reason.DEADLINE_EXCEEDED, Reason.INTERNAL})
"""A grant outlives these: it is good until it ends."""

_log = structlog.get_logger("hands.grants")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a hand needs for its way out.

    `renew_at` and `ends_at` are monotonic times. `ca_certificate` (PEM) signs what the sandbox is
    shown in the names of hosts; `variables` are placeholders by the names of their environment
    variables; `problems` says what cannot be used as things are; `repositories` are the session's.
    """

    text: Secret
    renew_at: float
    ends_at: float
    ca_certificate: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    problems: Sequence[SessionError] = ()
    repositories: Sequence[Repository] = ()


class Granter(Protocol):
    """Who gives grants."""

    async def open(self, session_id: str, hand_id: str) -> Grant:
        """A grant, or a later one, for a hand that serves a session. Raises `DroverError`."""
        ...

    async def revoke(self, session_id: str) -> None:
        """Ends every grant that the session was given until now. Raises `DroverError`."""
        ...


@dataclass(slots=True)
class _Held:
    """What is known of one grant. `opening` is what comes of the attempt under way."""

    call: CallContext
    grant: Grant | None = None
    opening: asyncio.Future[Grant] | None = None
    failure: DroverError | None = None
    failed_at: float = 0.0


class Grants:
    """Opens grants when they are first asked for, and renews those that are used.

    `tasks` owns the attempts: one at a time for each grant, whoever waits for it. Those of sessions
    that do nothing end by themselves.
    """

    def __init__(self, granter: Granter, tasks: asyncio.TaskGroup, clock: Clock) -> None:
        self._granter = granter
        self._tasks = tasks
        self._clock = clock
        self._held: dict[tuple[str, str], _Held] = {}
        self._last: dict[str, float] = {}  # by session: when the last of its grants ends

    async def current(self, session_id: str, hand_id: str, *, renewed: bool = False) -> Grant:
        """A grant that has not ended, of the workspace for which it was first asked.

        One that is due is renewed behind the caller, or with `renewed` before it is answered.
        Raises `DroverError`: NOT_FOUND and ARCHIVED where the session gets none, UNAVAILABLE.
        """
        key = (session_id, hand_id)
        held = self._of(key)
        now = self._clock.monotonic()
        if held.grant is not None and now < held.grant.renew_at:
            return held.grant
        usable = held.grant is not None and now < held.grant.ends_at
        rests = held.failure is not None and now < held.failed_at + _PAUSE
        opening = held.opening if held.opening or rests else self._open(key, held)
        if usable and held.grant is not None and (opening is None or not renewed):
            return held.grant
        if opening is None:
            raise held.failure or _dropped()
        try:
            return await asyncio.shield(opening)
        except DroverError:
            if usable and held.grant is not None:  # it was not taken away
                return held.grant
            raise

    def hold(self, session_id: str, hand_id: str) -> None:
        """Has a grant, once it is asked for, be of the caller's workspace, whoever asks then."""
        self._of((session_id, hand_id))

    async def expect(self, session_id: str, hand_id: str) -> None:
        """Opens a grant that will be asked for. Raises nothing: whoever asks is told."""
        with suppress(DroverError):
            await self.current(session_id, hand_id)

    def fresh(self, grant: Grant) -> bool:
        """Whether a grant need not be renewed yet."""
        return self._clock.monotonic() < grant.renew_at

    def drop(self, session_id: str, hand_id: str) -> None:
        """Forgets a grant: nobody uses it from now on."""
        held = self._held.pop((session_id, hand_id), None)
        if held is not None and held.opening is not None and not held.opening.done():
            held.opening.set_exception(_dropped())

    async def revoke(self, session_id: str) -> None:
        """Ends every grant of a session, at the vault proxy too, as far as that can be reached.

        What it does not hear of ends by itself within minutes, and is held by nobody.
        """
        for key in [key for key in self._held if key[0] == session_id]:
            self.drop(*key)
        if self._last.pop(session_id, 0.0) <= self._clock.monotonic():
            return
        try:
            await self._granter.revoke(session_id)
        except DroverError as error:
            _log.warning("grants_not_revoked", session_id=session_id, reason=error.message)

    def _of(self, key: tuple[str, str]) -> _Held:
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(current_call())
        return held

    def _open(self, key: tuple[str, str], held: _Held) -> asyncio.Future[Grant]:
        opening: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        held.opening = opening
        self._tasks.create_task(self._attempt(key, held, opening), name=f"grant {key[1]}")
        return opening

    async def _attempt(
        self, key: tuple[str, str], held: _Held, opening: asyncio.Future[Grant]
    ) -> None:
        try:
            with call_context(held.call):
                grant = await self._granter.open(*key)
        except Exception as error:  # noqa: BLE001  # whatever it is, the other sessions go on
            failure = error if isinstance(error, DroverError) else _broken()
            if failure is not error:
                _log.exception("grant_not_opened")
            _log.info("no_grant", session_id=key[0], hand_id=key[1], reason=failure.message)
            held.failure, held.failed_at = failure, self._clock.monotonic()
            if failure.reason not in _PASSING:
                held.grant = None  # it was taken away
            if not opening.done():
                opening.set_exception(failure)
        else:
            held.grant, held.failure = grant, None
            self._note(key[0], grant)
            if not opening.done():
                opening.set_result(grant)
        finally:
            held.opening = None

    def _note(self, session_id: str, grant: Grant) -> None:
        """Has `revoke` know that there is something to revoke, though nobody holds it by then."""
        self._last[session_id] = max(grant.ends_at, self._last.get(session_id, 0.0))
        if len(self._last) > _MANY:
            now = self._clock.monotonic()
            self._last = {session: end for session, end in self._last.items() if end > now}


def _dropped() -> DroverError:
    return DroverError(Reason.UNAVAILABLE, "the hand has ended, or serves another session")


def _broken() -> DroverError:
    return DroverError(Reason.INTERNAL, "the vault proxy could not be asked")
