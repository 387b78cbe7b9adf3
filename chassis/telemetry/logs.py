"""Structured logs: one JSON object a line on standard error, with the ids of the call at hand."""

from __future__ import annotations

import logging
import re
import sys

import orjson
import structlog
from structlog.typing import EventDict, WrappedLogger

from chassis.context import current_call
from chassis.secret import Secret
from chassis.telemetry import tracing

_HIDDEN = "***"
_SECRET_KEY = re.compile(
    r"(^|[_-])(authorization|api[_-]?key|token|secret|password|cookie|credential)$", re.IGNORECASE
)
# Bearer and basic credentials, API keys, user info and secret parameters of URLs.
_SECRET_TEXT = re.compile(
    r"(?P<keep>\b(?:bearer|basic)\s+|://|[?&](?:api_key|key|token|secret|password)=)"
    r"(?:(?<=://)[^\s/@:]+:[^\s/@]+(?=@)|(?<!://)[^\s&\"',;]+)"
    r"|\bsk-[\w-]{8,}",
    re.IGNORECASE,
)


def setup(service: str, level: str = "info") -> None:
    """Sends everything that is logged, the libraries' own lines too, to standard error as JSON.

    Each line has `service`, `level`, `timestamp` (UTC), `event`, what is bound with
    `structlog.contextvars`, and where there is one the request, workspace and trace id.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            lambda _log, _method, line: {"service": service, **_call_ids(), **line},
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            structlog.processors.JSONRenderer(orjson.dumps, default=repr),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_Forward()], level=max(number, logging.WARNING), force=True)
    logging.captureWarnings(capture=True)


def redact(_log: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Blanks what looks like a credential, by key and by text, at any depth."""
    return {key: _clean(key, value) for key, value in line.items()}


def _clean(key: str, value: object) -> object:
    if isinstance(value, Secret) or (value and _SECRET_KEY.search(key)):
        return _HIDDEN
    if isinstance(value, str):
        return _SECRET_TEXT.sub(lambda match: (match["keep"] or "") + _HIDDEN, value)
    if isinstance(value, dict):
        return {name: _clean(str(name), part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_clean("", part) for part in value]
    return value


def _call_ids() -> dict[str, str]:
    call, trace_id = current_call(), tracing.trace_id()
    ids = {"trace_id": trace_id} if trace_id else {}
    if call.request_id:
        ids |= {"request_id": call.request_id, "workspace_id": call.workspace_id}
    return ids


class _Forward(logging.Handler):
    """Hands the standard library's log records on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        fields = {"message": record.getMessage(), "exc_info": record.exc_info}
        structlog.get_logger().log(record.levelno, "library", logger=record.name, **fields)
