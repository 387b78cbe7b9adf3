"""Events in short form."""

from __future__ import annotations

from drover.event.v1 import agent_event_pb2, event_pb2, user_event_pb2

ALLOW = agent_event_pb2.EVALUATED_PERMISSION_ALLOW
ASK = agent_event_pb2.EVALUATED_PERMISSION_ASK
DENY = agent_event_pb2.EVALUATED_PERMISSION_DENY


def message(text="hello", event_id=""):
    event = event_pb2.Event(id=event_id)
    event.user_message.content.add().text.text = text
    return event


def system_message(text="be brief", event_id=""):
    event = event_pb2.Event(id=event_id)
    event.system_message.content.add().text = text
    return event


def interrupt(thread_id=None):
    interrupt = user_event_pb2.UserInterrupt(session_thread_id=thread_id)
    return event_pb2.Event(user_interrupt=interrupt)


def confirmation(call_id, *, allow=True):
    allowed, denied = (
        user_event_pb2.CONFIRMATION_RESULT_ALLOW,
        user_event_pb2.CONFIRMATION_RESULT_DENY,
    )
    return event_pb2.Event(
        user_tool_confirmation=user_event_pb2.UserToolConfirmation(
            tool_use_id=call_id, result=allowed if allow else denied
        )
    )


def custom_result(call_id, text="42"):
    event = event_pb2.Event()
    event.user_custom_tool_result.custom_tool_use_id = call_id
    event.user_custom_tool_result.content.add().text.text = text
    return event


def running():
    event = event_pb2.Event()
    event.session_status_running.SetInParent()
    return event


def thread_running(thread_id):
    event = event_pb2.Event()
    event.session_thread_status_running.session_thread_id = thread_id
    return event


def idle(*waits_for):
    event = event_pb2.Event()
    reason = event.session_status_idle.stop_reason
    if waits_for:
        reason.requires_action.event_ids.extend(waits_for)
    else:
        reason.end_turn.SetInParent()
    return event


def terminated():
    event = event_pb2.Event()
    event.session_status_terminated.SetInParent()
    return event


def said(text, event_id=""):
    event = event_pb2.Event(id=event_id)
    event.agent_message.content.add().text.text = text
    return event


def worker_result(call_id, text="worked", event_id=""):
    event = event_pb2.Event(id=event_id)
    event.user_tool_result.tool_use_id = call_id
    event.user_tool_result.content.add().text.text = text
    return event


def tool_use(event_id, permission=ALLOW, name="bash"):
    event = event_pb2.Event(id=event_id)
    event.agent_tool_use.name = name
    event.agent_tool_use.input = "{}"
    event.agent_tool_use.evaluated_permission = permission
    return event


def custom_use(event_id):
    event = event_pb2.Event(id=event_id)
    event.agent_custom_tool_use.name = "ask"
    event.agent_custom_tool_use.input = "{}"
    return event


def tool_result(call_id, text="done", event_id=""):
    event = event_pb2.Event(id=event_id)
    event.agent_tool_result.tool_use_id = call_id
    event.agent_tool_result.content.add().text.text = text
    return event
