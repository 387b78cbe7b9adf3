from __future__ import annotations

import io
import json
import logging
import warnings

import pytest
import structlog

from chassis.context import CallContext, call_context
from chassis.secret import Secret
from chassis.telemetry import logs


@pytest.fixture
def lines(monkeypatch):
    """Sets logging up as a process does; answers what has been written so far."""
    stream = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stderr", stream)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    logs.setup("session", "info")
    yield lambda: [json.loads(line) for line in stream.buffer.getvalue().splitlines()]
    logging.captureWarnings(capture=False)
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_line_is_json_with_the_ids_of_the_call_at_hand(lines):
    structlog.contextvars.bind_contextvars(session_id="sesn_1")
    with call_context(CallContext("wrkspc_1", "req_1")):
        structlog.get_logger("x").info("lease_taken", generation=3)
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "lease_taken",
        "generation": 3,
        "level": "info",
        "request_id": "req_1",
        "service": "session",
        "session_id": "sesn_1",
        "workspace_id": "wrkspc_1",
    }


def test_lines_below_the_level_are_not_written(lines):
    structlog.get_logger("x").debug("detail")
    assert lines() == []


def test_exceptions_are_one_line_with_their_traceback(lines):
    try:
        int("broken")
    except ValueError:
        structlog.get_logger("x").exception("failed")
    (line,) = lines()
    assert "ValueError: invalid literal" in line["exception"]


def test_library_records_and_warnings_come_out_as_json_too(lines):
    logging.getLogger("some.library").warning("reading %s", "slowly")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old habits", UserWarning, stacklevel=1)
    record, warning = lines()
    assert (record["event"], record["logger"]) == ("library", "some.library")
    assert record["message"] == "reading slowly"
    assert "old habits" in warning["message"]


@pytest.mark.parametrize("key", ["authorization", "api_key", "x-api-key", "access_token", "Cookie"])
def test_value_of_a_secret_key_is_blanked_at_any_depth(key):
    line = logs.redact(None, "info", {"event": "x", "headers": [{key: "s3cret"}], key: "s3cret"})
    assert "s3cret" not in repr(line)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("key sk-ant-api03-abcdefgh refused", "key *** refused"),
        ("GET https://user:pa55@host/x?token=abc&n=1", "GET https://***@host/x?token=***&n=1"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_credentials_in_text_are_blanked_and_the_rest_is_kept(text, shown):
    assert logs.redact(None, "info", {"event": text}) == {"event": shown}


def test_secrets_and_unknown_objects_are_no_trouble(lines):
    structlog.get_logger("x").info("opened", value=Secret("s3cret"), inside=[Secret("s3cret")])
    structlog.get_logger("x").info("token_counts", input_tokens=7, kind=object)
    first, second = lines()
    assert (first["value"], first["inside"]) == ("***", ["***"])
    assert second["input_tokens"] == 7
