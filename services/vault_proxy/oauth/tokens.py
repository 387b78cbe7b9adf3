"""Access tokens as they are used: refreshed when due, once, however many calls wait (case V7)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from services.vault_proxy.domain.server_credential import OauthCredential
from services.vault_proxy.oauth.endpoint import (
    ExchangeError,
    ExchangeFailedError,
    ExchangeRefusedError,
)

if TYPE_CHECKING:
    from chassis.clock import Clock
    from services.vault_proxy.domain.server_credential import NewTokens, Refresh, ServerCredentials
    from services.vault_proxy.oauth.endpoint import TokenEndpoints

SKEW: Final = timedelta(seconds=60)
"""A token counts as expired so long before its time: clocks differ, and requests take a while."""
SETTLE_SECONDS: Final = 3.0
"""That a process which stops waits for exchanges under way: their refresh tokens are spent."""
_AGAIN: Final = 0.25
_REMEMBERED: Final = 1_024
_CHANGES: Final = 5
_OTHERS: Final = (0.1, 0.3, 0.6, 1.0)

Pause = Callable[[float], Awaitable[None]]


class NoLongerThereError(ExchangeError):
    """The credential was archived or deleted meanwhile."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """How a refresh ended, for who keeps the records."""

    credential: OauthCredential
    error: Exception | None = None


Told = Callable[[Refreshed], Awaitable[None]]


class AccessTokens:
    """Keeps access tokens good.

    Per credential one exchange is under way in this process at a time, and whoever needs its
    outcome waits for it; one that has begun is finished even if nobody waits any more, for the
    refresh token that it spends is worth nothing afterwards. What the endpoint answers is stored
    before it is used; what cannot be stored now is kept in memory, since nobody can get it again,
    and stored before the endpoint is asked once more. Among replicas the stored revision decides:
    who is refused because another was faster takes what that one has stored.
    """

    def __init__(
        self,
        credentials: ServerCredentials,
        endpoints: TokenEndpoints,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        *,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._credentials = credentials
        self._endpoints = endpoints
        self._clock = clock
        self._tasks = tasks
        self._pause = pause
        self._flights: dict[str, asyncio.Task[OauthCredential | Exception]] = {}
        self._refused: OrderedDict[str, tuple[int, ExchangeRefusedError]] = OrderedDict()
        self._unstored: OrderedDict[str, tuple[OauthCredential, NewTokens]] = OrderedDict()

    async def good(
        self, workspace_id: str, credential: OauthCredential, told: Told
    ) -> OauthCredential:
        """The credential, refreshed first if its token is about to expire. Raises `ExchangeError`.

        A token that is still good for a moment is used where no other can be had just now.
        """
        if credential.refresh is None or not self._due(credential):
            return credential
        try:
            return await self._refreshed(workspace_id, credential, told)
        except ExchangeFailedError:
            if credential.expires_at is not None and credential.expires_at > self._clock.now():
                return credential
            raise

    async def renewed(
        self,
        workspace_id: str,
        credential: OauthCredential,
        told: Told,
        *,
        insist: bool = False,
    ) -> OauthCredential:
        """The credential with another token than the one it has, which a server refused.

        `insist` asks the endpoint even where it has refused this refresh token before. Raises
        `ExchangeError`.
        """
        if insist:
            self._refused.pop(credential.id, None)
        return await self._refreshed(workspace_id, credential, told)

    async def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """Before the way to endpoints and the database close: waits for what is under way."""
        if self._flights:
            await asyncio.wait(tuple(self._flights.values()), timeout=seconds)

    def _due(self, credential: OauthCredential) -> bool:
        return (
            credential.expires_at is not None and credential.expires_at - self._clock.now() <= SKEW
        )

    async def _refreshed(
        self, workspace_id: str, credential: OauthCredential, told: Told
    ) -> OauthCredential:
        flight = self._flights.get(credential.id)
        if flight is None:
            flight = self._tasks.create_task(self._outcome(workspace_id, credential, told))
            self._flights[credential.id] = flight
            flight.add_done_callback(lambda _: self._flights.pop(credential.id, None))
        outcome = await asyncio.shield(flight)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _outcome(
        self, workspace_id: str, credential: OauthCredential, told: Told
    ) -> OauthCredential | Exception:
        """What `_refresh` answers or raises: a task that fails would take all others with it."""
        try:
            return await self._refresh(workspace_id, credential, told)
        except Exception as error:  # noqa: BLE001  # it is raised where it is waited for
            return error

    async def _refresh(
        self, workspace_id: str, credential: OauthCredential, told: Told
    ) -> OauthCredential:
        latest = await self._latest(workspace_id, credential)
        if _differs(latest, credential) and not self._due(latest):
            return latest
        if (stored := await self._stored(workspace_id, latest)) is not None:
            await told(Refreshed(stored))
            if not self._due(stored):
                return stored
            latest = stored
        if latest.refresh is None:
            msg = "the credential has no refresh token"
            raise ExchangeRefusedError(msg)
        known = self._refused.get(latest.id)
        if known is not None and known[0] == latest.revision:
            raise known[1]
        try:
            tokens = await self._exchanged(latest.refresh)
        except ExchangeRefusedError as error:
            faster = await self._of_another(workspace_id, latest)
            if faster is not None:
                return faster
            self._remember(latest, error)
            await told(Refreshed(latest, error))
            raise
        except ExchangeError as error:
            await told(Refreshed(latest, error))
            raise
        kept = await self._kept(workspace_id, latest, tokens)
        await told(Refreshed(kept))
        return kept

    async def _stored(self, workspace_id: str, latest: OauthCredential) -> OauthCredential | None:
        """The credential with tokens that could not be stored before; `None` without any."""
        before, tokens = self._unstored.get(latest.id, (latest, None))
        if tokens is None:
            return None
        if not _same(before, latest):  # somebody has saved others since
            self._unstored.pop(latest.id, None)
            return None
        return await self._kept(workspace_id, latest, tokens)

    async def _exchanged(self, refresh: Refresh) -> NewTokens:
        """Asks the endpoint, and once more where it was only in trouble."""
        try:
            return await self._endpoints.exchange(refresh)
        except ExchangeFailedError as error:
            in_trouble = error.reply is not None and error.reply.status >= 500  # noqa: PLR2004
            if error.reached and not in_trouble:
                raise
        await self._pause(_AGAIN)
        return await self._endpoints.exchange(refresh)

    async def _kept(
        self, workspace_id: str, credential: OauthCredential, tokens: NewTokens
    ) -> OauthCredential:
        """Stores what was got, so that it may be used; another's change of tokens is left alone.

        A change beside the tokens must not cost the new refresh token, which no one can get again.
        """
        self._unstored[credential.id] = credential, tokens
        while len(self._unstored) > _REMEMBERED:
            self._unstored.popitem(last=False)
        try:
            stored = await self._replaced(workspace_id, credential, tokens)
        except NoLongerThereError:
            self._unstored.pop(credential.id, None)
            raise
        self._unstored.pop(credential.id, None)
        return stored

    async def _replaced(
        self, workspace_id: str, credential: OauthCredential, tokens: NewTokens
    ) -> OauthCredential:
        for tried in range(_CHANGES):
            try:
                stored = await self._credentials.refreshed(workspace_id, credential, tokens)
            except DroverError as error:
                if error.reason != Reason.UNAVAILABLE or tried == _CHANGES - 1:
                    raise
                await self._pause(_AGAIN)
                continue
            if stored is None:
                msg = "the credential was archived or deleted"
                raise NoLongerThereError(msg)
            if _holds(stored, tokens) or not _same(stored, credential):
                return stored
            credential = stored
        msg = "the credential keeps changing"
        raise ExchangeFailedError(msg, reached=True)

    async def _of_another(
        self, workspace_id: str, credential: OauthCredential
    ) -> OauthCredential | None:
        """What another replica has got in our place, if it stores it within two seconds."""
        for seconds in (0.0, *_OTHERS):
            if seconds:
                await self._pause(seconds)
            latest = await self._latest(workspace_id, credential)
            if _differs(latest, credential):
                return latest
        return None

    async def _latest(self, workspace_id: str, credential: OauthCredential) -> OauthCredential:
        latest = await self._credentials.latest(workspace_id, credential)
        if not isinstance(latest, OauthCredential):
            msg = "the credential was archived or deleted"
            raise NoLongerThereError(msg)
        return latest

    def _remember(self, credential: OauthCredential, error: ExchangeRefusedError) -> None:
        self._refused[credential.id] = credential.revision, error
        while len(self._refused) > _REMEMBERED:
            self._refused.popitem(last=False)


def _differs(one: OauthCredential, other: OauthCredential) -> bool:
    """Whether their access tokens do."""
    return not one.access_token.matches(other.access_token.open())


def _holds(credential: OauthCredential, tokens: NewTokens) -> bool:
    """Whether these are the credential's tokens now."""
    if not credential.access_token.matches(tokens.access_token.open()):
        return False
    if tokens.refresh_token is None or credential.refresh is None:
        return True
    return credential.refresh.refresh_token.matches(tokens.refresh_token.open())


def _same(one: OauthCredential, other: OauthCredential) -> bool:
    """Whether both their tokens are the same."""
    if one.refresh is None or other.refresh is None or _differs(one, other):
        return False
    return one.refresh.refresh_token.matches(other.refresh.refresh_token.open())
