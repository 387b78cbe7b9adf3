"""API keys that the registry keeps, as the gateway knows them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.api.v1.annotations_pb2 import KEY_KIND_API
from drover.key.v1 import api_key_service_pb2 as pb
from gateway.auth import Caller, EndedKeyError, UnknownKeyError

if TYPE_CHECKING:
    from chassis.clock import Clock
    from drover.key.v1.api_key_pb2 import ApiKey
    from gateway.auth import Token
    from gateway.upstream import Unary, Upstream

PATIENCE: Final = 300.0
"""Seconds for which a key that was known opens what it did while the registry does not answer."""

_KEYS: Final = 10_000
_WAIT: Final = 1.0


@dataclass(slots=True)
class _Known:
    """What the registry said of a key `at` a time; it is not asked again before `until`."""

    caller: Caller
    revoked: bool
    at: float
    until: float


class StoredKeys:
    """Knows API keys by their digests, as the registry had them at most `seconds` ago.

    Every gateway asks for itself, so a key that is revoked opens nothing after those seconds. While
    the registry does not answer, what it said last stands, for `PATIENCE` at most; a key expires by
    this process's own clock all the same. Look-ups are tasks of `group`.
    """

    def __init__(self, ask: Unary, group: asyncio.TaskGroup, seconds: float, clock: Clock) -> None:
        self._ask = ask
        self._group = group
        self._seconds = seconds
        self._clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[_Known | Exception]] = {}

    @classmethod
    def of(
        cls, upstream: Upstream, group: asyncio.TaskGroup, seconds: float, clock: Clock
    ) -> StoredKeys:
        """Over the registry behind the gateway."""
        service = pb.DESCRIPTOR.services_by_name["ApiKeyService"]
        ask = upstream.unary(service.methods_by_name["AuthenticateApiKey"])
        return cls(ask, group, seconds, clock)

    def close(self) -> None:
        """Gives up what is being asked."""
        for asking in self._asking.values():
            asking.cancel()

    async def caller(self, token: Token) -> Caller:
        """Who holds a key.

        Raises `UnknownKeyError` for one that was never made, `EndedKeyError` for one that was
        revoked or has expired, and UNAVAILABLE or DEADLINE_EXCEEDED when nobody can tell.
        """
        digest = token.digest
        known = self._known.get(digest)
        now = self._clock.monotonic()
        if known is None:
            known = await self._answer(digest)
        elif now >= known.until:
            known = await self._refreshed(digest, known)
        if digest in self._known:
            self._known.move_to_end(digest)
        self._check(known)
        return known.caller

    async def _refreshed(self, digest: bytes, known: _Known) -> _Known:
        """What the registry says now, or said before if it does not say anything for a moment."""
        if self._clock.monotonic() - known.at > PATIENCE:
            return await self._answer(digest)
        asking = self._asked(digest)
        done, _ = await asyncio.wait({asking}, timeout=_WAIT)
        if done:
            answer = asking.result()
            if isinstance(answer, _Known):
                return answer
            if isinstance(answer, UnknownKeyError):
                raise answer
        known.until = self._clock.monotonic() + self._seconds
        return known

    async def _answer(self, digest: bytes) -> _Known:
        # Of several that ask, one may give up: the look-up goes on for the others.
        answer = await asyncio.shield(self._asked(digest))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _asked(self, digest: bytes) -> asyncio.Task[_Known | Exception]:
        """The one look-up of a digest that is under way."""
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = self._group.create_task(self._look_up(digest))
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        return asking

    async def _look_up(self, digest: bytes) -> _Known | Exception:
        # From the question on: what changed behind its back counts by then, however late it comes.
        at = self._clock.monotonic()
        try:
            answer, _ = await self._ask(pb.AuthenticateApiKeyRequest(digest=digest))
        except DroverError as error:
            if error.reason is not Reason.UNAUTHENTICATED:
                return error
            self._known.pop(digest, None)
            return UnknownKeyError("the API key is not valid")
        except Exception as error:  # noqa: BLE001  # whoever waits raises it; the group goes on
            return error
        key: ApiKey = answer.api_key
        known = _Known(_holder(key, digest), key.HasField("revoked_at"), at, at + self._seconds)
        self._known[digest] = known
        self._known.move_to_end(digest)
        if len(self._known) > _KEYS:
            self._known.popitem(last=False)
        return known

    def _check(self, known: _Known) -> None:
        caller = known.caller
        if known.revoked:
            told = f"the API key {caller.key_id} was revoked: use another"
            raise EndedKeyError(told, caller.key_id)
        if caller.expires_at is not None and self._clock.now() >= caller.expires_at:
            told = (
                f"the API key {caller.key_id} has expired: ask for another, which "
                "`drover keys create` makes"
            )
            raise EndedKeyError(told, caller.key_id)


def _holder(key: ApiKey, digest: bytes) -> Caller:
    expires_at = key.expires_at.ToDatetime(UTC) if key.HasField("expires_at") else None
    return Caller(
        key.workspace_id,
        digest,
        KEY_KIND_API,
        key_id=key.id,
        scopes=frozenset(key.scopes),
        requests_per_minute=key.requests_per_minute or None,
        expires_at=expires_at,
        may_end=True,
    )
