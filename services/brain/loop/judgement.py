"""Calls under the permission policy `auto`, judged before anybody hears of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from services.brain.domain import budget, judge
from services.brain.harness.port import ModelRequest
from services.brain.loop.model_call import ModelCall
from services.brain.loop.sync_points import Point
from services.brain.model.port import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.event.v1.event_pb2 import Event
    from services.brain.domain.events import EventFactory
    from services.brain.domain.judge import Use
    from services.brain.loop.session_log import SessionLog
    from services.brain.loop.turn import Ports

_log = structlog.get_logger("brain.judgement")


class Judgement:
    """Asks the model about the calls of each response, once, while nothing of it is in the log.

    Its request is one of its own there, with its own tokens, within the one that it is about. A
    brain that takes over finds both without an end: it makes both again.
    """

    def __init__(self, ports: Ports, factory: EventFactory, log: SessionLog) -> None:
        self._ports = ports
        self._factory = factory
        self._log = log
        self._call: ModelCall | None = None

    def interrupt(self) -> None:
        """Stops the judge, if it is at work; `judge` then answers False."""
        if self._call is not None:
            self._call.interrupt()

    async def judge(self, response: Sequence[Event]) -> bool:
        """Writes verdicts on the calls in `response`; whether no interrupt came between.

        A judge that fails, takes too long or has no budget left leaves the calls as they are: a
        person is asked.
        """
        uses = judge.to_judge(response)
        used = response[-1].span_model_request_end.model_usage
        if not uses or budget.reached(self._log.state, self._ports.models, used):
            return True
        start = self._factory.request_start()
        self._log.add(start)
        await self._log.flush()
        call = self._call = ModelCall(
            self._ports.model,
            self._factory,
            self._log.state,
            request=start.id,
            models=self._ports.models,
            files=self._ports.files,
            points=self._ports.points,
        )
        if self._log.waiting.interrupt:
            call.interrupt()
        try:
            async with asyncio.timeout(self._ports.judge_seconds):
                answer = await call.perform(self._request(uses))
        except (ModelError, TimeoutError) as error:
            kind = error.kind if isinstance(error, ModelError) else "timeout"
            _log.warning("judge_failed", kind=kind, calls=len(uses))
            self._log.add(self._factory.request_failed(start.id, call.usage()))
            return True
        finally:
            self._call = None
        if answer is None:
            self._log.add(self._factory.request_failed(start.id, call.usage()))
            return False
        await self._ports.points.reach(Point.JUDGED)
        *said, end = answer
        self._log.add(end)
        _decide(uses, said, end)
        return True

    def _request(self, uses: Sequence[Use]) -> ModelRequest:
        state = self._log.state
        return ModelRequest(model=state.agent.model.id, body=judge.request(state, uses))


def _decide(uses: Sequence[Use], said: Sequence[Event], end: Event) -> None:
    text = "".join(block.text.text for event in said for block in event.agent_message.content)
    verdicts = judge.verdicts(text, end.span_model_request_end.stop_reason, len(uses))
    for use, verdict in zip(uses, verdicts, strict=True):
        verdict.apply(use)
