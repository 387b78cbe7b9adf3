"""What every log must look like, whatever has happened (EVENTS §4 to §6, §12)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from drover.event.v1.session_event_pb2 import RETRY_STATUS_TYPE_RETRYING
from tests.simulation.catalog import PRICE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.event.v1.event_pb2 import Event

_CALLS = {"agent_tool_use", "agent_mcp_tool_use", "agent_custom_tool_use"}
_AGENTS = {"agent_message", "agent_thinking", *_CALLS}
PICO_PER_CENT = 10**10
_TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens")


class Grammar:
    """Reads one log from its start, of a session with a budget in cents (0 for none).

    `faults` is what is wrong with it.
    """

    def __init__(self, log: Sequence[Event], budget: int) -> None:
        self._cap = budget
        self.faults: list[str] = []
        self.open_calls: dict[str, Event] = {}
        self.results: dict[str, Event] = {}
        self.calls: dict[str, Event] = {}
        self.used: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        self._status = "idle"
        self._request = ""
        # A request that is about the open one: the judge's.
        self._beside = ""
        self._said = 0
        self._names = [event.WhichOneof("payload") or "" for event in log]
        self._log = log
        self._at = 0
        for at, event in enumerate(log):
            self._at = at
            name = self._names[at]
            if name in _AGENTS:
                self._agent()
            rule = getattr(self, f"_{name}", None)
            if rule is not None:
                rule(event)

    def _fault(self, text: str) -> None:
        event = self._log[self._at]
        self.faults.append(f"event {event.seq} ({self._names[self._at]}): {text}")

    def _before(self, back: int = 1) -> str:
        return self._names[self._at - back] if self._at >= back else ""

    def _after(self) -> str:
        return self._names[self._at + 1] if self._at + 1 < len(self._names) else ""

    def _agent(self) -> None:
        self._said += 1
        if not self._request:
            self._fault("outside any model request")

    def _session_status_running(self, _event: Event) -> None:
        if self._status == "running":
            self._fault("the session ran already")
        if self._after() != "session_thread_status_running":
            self._fault("the thread's own status does not follow")
        self._status = "running"

    def _session_status_rescheduled(self, _event: Event) -> None:
        if self._status != "running":
            self._fault("nothing ran")
        self._status = "rescheduling"

    def _span_model_request_start(self, event: Event) -> None:
        if self._status != "running":
            self._fault(f"while {self._status}")
        spent = self.used["input_tokens"] * PRICE.input + self.used["output_tokens"] * PRICE.output
        if self._cap and spent >= self._cap * PICO_PER_CENT:
            self._fault(f"{spent} pico-dollars are spent, of {self._cap} cents")
        if self._request:
            if self._beside or self._said:
                self._fault("the one before has no end")
            self._beside = event.id
            return
        if self.open_calls:
            self._fault(f"calls without a result: {list(self.open_calls)}")
        self._request, self._said = event.id, 0

    def _span_model_request_end(self, event: Event) -> None:
        end = event.span_model_request_end
        for field in _TOKENS:
            self.used[field] += getattr(end.model_usage, field)
        if self._beside:
            if end.model_request_start_id != self._beside:
                self._fault("the judge's request has no end")
            self._beside = ""
            return
        if end.model_request_start_id != self._request:
            self._fault(f"ends {end.model_request_start_id}, open is {self._request or 'none'}")
        if end.is_error and self._said:
            self._fault("failed, and yet has a response")
        self._request = ""

    def _agent_tool_use(self, event: Event) -> None:
        self.calls[event.id] = self.open_calls[event.id] = event

    _agent_custom_tool_use = _agent_tool_use
    _agent_mcp_tool_use = _agent_tool_use

    def _agent_tool_result(self, event: Event) -> None:
        self._result(event.agent_tool_result.tool_use_id, event)

    def _agent_mcp_tool_result(self, event: Event) -> None:
        self._result(event.agent_mcp_tool_result.mcp_tool_use_id, event)

    def _user_custom_tool_result(self, event: Event) -> None:
        self._result(event.user_custom_tool_result.custom_tool_use_id, event)

    def _user_tool_result(self, event: Event) -> None:
        self._result(event.user_tool_result.tool_use_id, event)

    def _result(self, call_id: str, event: Event) -> None:
        if call_id in self.results:
            self._fault(f"the second result of {call_id}")
        elif call_id not in self.calls:
            self._fault(f"the result of {call_id}, which nobody called")
        self.results[call_id] = event
        self.open_calls.pop(call_id, None)

    def _session_usage(self, event: Event) -> None:
        if self._after() != "session_status_idle":
            self._fault("no idle event follows directly")
        for field in _TOKENS:
            told = getattr(event.session_usage.usage, field)
            if told != self.used[field]:
                self._fault(f"{field} is {told}, the requests' ends say {self.used[field]}")

    def _session_status_idle(self, event: Event) -> None:
        idle = event.session_status_idle.stop_reason
        self.stops[f"stop {idle.WhichOneof('reason')}"] += 1
        if self._before() != "session_usage" or self._before(2) != "session_thread_status_idle":
            self._fault(f"behind {self._before(2)}, {self._before()}")
        else:
            thread = self._log[self._at - 2].session_thread_status_idle.stop_reason
            at_budget = idle.HasField("budget_reached") and thread.HasField("end_turn")
            if thread != idle and not at_budget:
                self._fault("the thread gives another reason")
        if self._request:
            self._fault("a model request has no end")
        if idle.HasField("requires_action"):
            waits = set(idle.requires_action.event_ids)
            if not waits or not waits <= self.open_calls.keys():
                self._fault(f"waits for {sorted(waits)}, open are {sorted(self.open_calls)}")
        elif self.open_calls:
            self._fault(f"calls without a result: {list(self.open_calls)}")
        if idle.HasField("budget_reached"):
            usage = self._log[self._at - 1].session_usage
            cap = int(usage.budget.max_list_cost.amount or 0)
            if cap != self._cap or usage.usage.exact_list_cost < cap * PICO_PER_CENT:
                self._fault(f"at {usage.usage.exact_list_cost} of {self._cap} cents, said {cap}")
        self._status = "idle"

    def _session_updated(self, event: Event) -> None:
        changed = event.session_updated
        if changed.HasField("budget"):
            self._cap = int(changed.budget.max_list_cost.amount)
        elif changed.budget_removed:
            self._cap = 0

    def _session_error(self, event: Event) -> None:
        if event.session_error.error.retry_status.beside:
            if self._status != "running":
                self._fault(f"while {self._status}")
            return
        retrying = event.session_error.error.retry_status.type == RETRY_STATUS_TYPE_RETRYING
        following = "session_status_rescheduled" if retrying else "session_thread_status_idle"
        if self._after() != following:
            self._fault(f"is followed by {self._after()}")

    def _session_status_terminated(self, _event: Event) -> None:
        if any(name.startswith("session_status") for name in self._names[self._at + 1 :]):
            self._fault("is not the last status")
        self._status = "terminated"
