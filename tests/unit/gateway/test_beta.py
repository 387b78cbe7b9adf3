from __future__ import annotations

import typing

import pytest
from anthropic.types import AnthropicBetaParam
from starlette.datastructures import Headers

from chassis.errors import DroverError, Reason
from gateway import beta

NEEDED = "managed-agents-2026-04-01"


def test_the_client_sends_no_name_that_is_unknown_here() -> None:
    listed = typing.get_args(typing.get_args(AnthropicBetaParam)[1])
    assert set(listed) == beta.KNOWN


def test_the_needed_name_may_stand_among_others_and_in_any_line() -> None:
    beta.check(Headers(raw=[(b"anthropic-beta", f"skills-2025-10-02, {NEEDED}".encode())]), NEEDED)
    beta.check(
        Headers(
            raw=[(b"anthropic-beta", b"skills-2025-10-02"), (b"anthropic-beta", NEEDED.encode())]
        ),
        NEEDED,
    )
    beta.check(Headers({}), "")


def test_a_route_without_its_name_is_not_there() -> None:
    with pytest.raises(DroverError) as refused:
        beta.check(Headers({"anthropic-beta": "skills-2025-10-02"}), NEEDED)
    assert refused.value.reason is Reason.NOT_FOUND
    assert refused.value.message == f"this route needs the header anthropic-beta: {NEEDED}"


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DroverError) as refused:
        beta.check(Headers({"anthropic-beta": f"{NEEDED},time-travel-2031-01-01"}), NEEDED)
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    assert "time-travel-2031-01-01" in refused.value.message


def test_one_of_two_names_will_do_but_not_both() -> None:
    other = "agent-memory-2026-07-22"
    for name in (NEEDED, other):
        beta.check(Headers({"anthropic-beta": name}), NEEDED, other)
    with pytest.raises(DroverError) as refused:
        beta.check(Headers({"anthropic-beta": f"{other},{NEEDED}"}), NEEDED, other)
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    with pytest.raises(DroverError) as refused:
        beta.check(Headers({}), NEEDED, other)
    assert refused.value.reason is Reason.NOT_FOUND
    beta.check(Headers({"anthropic-beta": f"{other},{NEEDED}"}), NEEDED)
