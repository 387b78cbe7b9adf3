"""The web tools of sessions: what they answer, and what of it the audit trail keeps."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import structlog

from drover.vault.v1.credential_proxy_service_pb2 import FetchResponse, SearchResponse
from services.vault_proxy.domain.audit import MAX_PATH, AuditEntry, Kind, Outcome
from services.vault_proxy.web.failures import Code, WebError
from services.vault_proxy.web.judging import WebRules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from catalogue.hosts import Url
    from chassis.clock import Clock
    from drover.agent.v1.tool_pb2 import WebSettings
    from services.vault_proxy.domain.ports import Audit
    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.web.content import Shown
    from services.vault_proxy.web.fetching import Fetcher
    from services.vault_proxy.web.meter import WebMeter
    from services.vault_proxy.web.searching import Searcher

AT_ONCE: Final = 16
"""Calls of web tools that run at once in this process: each may hold a file of 20 MiB."""

OF_A_SESSION: Final = 4
"""And those of one session."""

_WAITING: Final = 256
_FETCH: Final = "web_fetch"
_SEARCH: Final = "web_search"
_OK: Final = "ok"

_log = structlog.get_logger("vault_proxy.web")


class WebTools:
    """Fetches and searches for sessions, within their networking and without their credentials."""

    def __init__(  # what it is made of
        self,
        fetcher: Fetcher,
        shown: Shown,
        searcher: Searcher,
        *,
        audit: Audit,
        clock: Clock,
        meter: WebMeter,
    ) -> None:
        self._meter = meter
        self._fetcher = fetcher
        self._shown = shown
        self._searcher = searcher
        self._audit = audit
        self._clock = clock
        self._free = asyncio.Semaphore(AT_ONCE)
        self._of_sessions: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._waiting = 0

    async def fetch(
        self, facts: SessionFacts, url: str, settings: WebSettings, call_id: str
    ) -> FetchResponse:
        """The page at `url`, or why there is none."""
        rules = WebRules(settings, facts.session)
        begun = self._clock.monotonic()

        async def told(hop: Url, outcome: Outcome, reason: str) -> None:
            await self._record(
                facts, outcome, reason, host=hop.host.text, port=hop.port, path=hop.path
            )

        try:
            async with self._turn(facts.session_id):
                fetched = await self._fetcher.fetch(url, rules, told)
                content = await self._shown.page(
                    fetched.url, fetched.kind, fetched.body, settings.max_content_tokens
                )
        except WebError as error:
            _log.info("fetch_failed", call_id=call_id, code=error.code)
            self._meter.called(_FETCH, error.code, self._clock.monotonic() - begun)
            answer = FetchResponse(is_error=True, error_code=error.code)
            answer.content.add().text.text = _told(_FETCH, error)
            return answer
        self._meter.called(_FETCH, _OK, self._clock.monotonic() - begun)
        return FetchResponse(content=content)

    async def search(
        self, facts: SessionFacts, query: str, settings: WebSettings, call_id: str
    ) -> SearchResponse:
        """What is found for `query`, or why nothing is."""
        rules = WebRules(settings, facts.session)
        begun = self._clock.monotonic()
        try:
            async with self._turn(facts.session_id):
                content = await self._searcher.search(query, settings, rules)
        except WebError as error:
            _log.info("search_failed", call_id=call_id, code=error.code)
            await self._record(facts, Outcome.FAILED, error.code, host=self._searcher.host)
            self._meter.called(_SEARCH, error.code, self._clock.monotonic() - begun)
            answer = SearchResponse(is_error=True, error_code=error.code)
            answer.content.add().text.text = _told(_SEARCH, error)
            return answer
        self._meter.called(_SEARCH, _OK, self._clock.monotonic() - begun)
        await self._record(facts, Outcome.ALLOWED, "", host=self._searcher.host)
        return SearchResponse(content=content)

    @asynccontextmanager
    async def _turn(self, session_id: str) -> AsyncIterator[None]:
        """Waits until it is a call's turn. No session keeps all others waiting."""
        if self._waiting >= _WAITING:
            raise WebError(Code.TOO_MANY, "Too many pages are read at once here. Try again later.")
        mine = self._of_sessions.get(session_id)
        if mine is None:
            mine = self._of_sessions[session_id] = asyncio.Semaphore(OF_A_SESSION)
        async with AsyncExitStack() as turn:
            self._waiting += 1
            try:
                await turn.enter_async_context(mine)
                await turn.enter_async_context(self._free)
            finally:
                self._waiting -= 1
            yield

    async def _record(
        self,
        facts: SessionFacts,
        outcome: Outcome,
        reason: str,
        *,
        host: str,
        port: int = 0,
        path: str = "",
    ) -> None:
        await self._audit.record(
            AuditEntry(
                at=self._clock.now(),
                kind=Kind.WEB,
                verdict=outcome,
                workspace_id=facts.workspace_id,
                session_id=facts.session_id,
                hand_id=facts.hand_id,
                method="GET",
                host=host,
                port=port,
                path=path[:MAX_PATH],
                reason=reason,
            )
        )


def _told(tool: str, error: WebError) -> str:
    return f"{tool} failed: {error.code}. {error.message}"
