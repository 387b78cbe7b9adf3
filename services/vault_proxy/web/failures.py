"""Why a web tool has nothing to show, in the words of the Messages API."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Error codes of the web tools (`web_fetch_tool_result_error`, `web_search_…`)."""

    INVALID_INPUT = "invalid_tool_input"
    URL_TOO_LONG = "url_too_long"
    NOT_ALLOWED = "url_not_allowed"
    NOT_ACCESSIBLE = "url_not_accessible"
    UNSUPPORTED_TYPE = "unsupported_content_type"
    TOO_LARGE = "content_too_large"
    TOO_MANY = "too_many_requests"
    UNAVAILABLE = "unavailable"
    QUERY_TOO_LONG = "query_too_long"


class WebError(Exception):
    """What the model is told instead of a page. `message` says what happened, and what would help.

    Neither has anything of what a server has written.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
