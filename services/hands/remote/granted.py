"""The grants of calls that no sandbox runs: one for each session that makes any."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeVar

from chassis.errors import DroverError, Reason
from services.hands.domain.remote import REMOTE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chassis.clock import Clock
    from chassis.secret import Secret
    from services.hands.egress.grants import Grants

T = TypeVar("T")

_KEPT_SECONDS: Final = 600.0
_VOID: Final = frozenset({Reason.UNAUTHENTICATED, Reason.PERMISSION_DENIED})
_VOID_CODES: Final = frozenset({None, "", "grant_invalid", "grant_expired", "grant_revoked"})
"""What is said of a grant that has ended, or that the session's vaults have left behind."""


class RemoteGrants:
    """Has things done by a session's grant. Calls of all kinds share it."""

    def __init__(self, grants: Grants, clock: Clock) -> None:
        self._grants = grants
        self._clock = clock
        # When each session last used its grant, in that order.
        self._used: OrderedDict[str, float] = OrderedDict()

    def prune(self) -> None:
        """Forgets the grants of sessions that have not used theirs for long."""
        before = self._clock.monotonic() - _KEPT_SECONDS
        while self._used and next(iter(self._used.values())) < before:
            session_id, _ = self._used.popitem(last=False)
            self._grants.drop(session_id, REMOTE)

    async def end(self, session_id: str) -> None:
        """The session has ended: its grants open nothing from now on."""
        if self._used.pop(session_id, None) is not None:
            await self._grants.revoke(session_id)

    async def use(self, session_id: str, ask: Callable[[Secret], Awaitable[T]]) -> T:
        """What `ask` answers, asked a second time by a new grant where the first is void.

        Raises `DroverError`.
        """
        self._used.pop(session_id, None)
        self._used[session_id] = self._clock.monotonic()
        grant = await self._grants.current(session_id, REMOTE)
        try:
            return await ask(grant.text)
        except DroverError as error:
            if error.reason not in _VOID or error.metadata.get("error_code") not in _VOID_CODES:
                raise
        self._grants.drop(session_id, REMOTE)
        grant = await self._grants.current(session_id, REMOTE)
        return await ask(grant.text)
