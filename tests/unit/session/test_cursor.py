"""Cursors that are good for one list only."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from services.session.domain.cursor import Cursors

SCOPE = ("events", "sesn_1", False, ())


def test_a_cursor_comes_back_as_it_was_made():
    cursors = Cursors(b"key")
    values = [7, "sesn_1", True, None]
    assert cursors.open(SCOPE, cursors.seal(SCOPE, values)) == values


@pytest.mark.parametrize(
    "scope", [("events", "sesn_2", False, ()), ("events", "sesn_1", True, ()), ("other",)]
)
def test_a_cursor_of_another_list_order_or_filter_is_refused(scope):
    cursors = Cursors(b"key")
    with pytest.raises(DroverError) as caught:
        cursors.open(scope, cursors.seal(SCOPE, [7]))
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    assert caught.value.message.startswith("page: ")


def test_a_cursor_of_another_installation_is_refused():
    with pytest.raises(DroverError):
        Cursors(b"key").open(SCOPE, Cursors(b"another").seal(SCOPE, [7]))


@pytest.mark.parametrize("values", [[7], [70], [700]])
def test_a_cursor_that_was_cut_or_altered_anywhere_is_refused(values):
    cursors = Cursors(b"key")
    cursor = cursors.seal(SCOPE, values)
    altered = {cursor[:end] for end in range(len(cursor))} | {f"{cursor}=", f"{cursor}A"}
    for index, letter in enumerate(cursor):
        others = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") - {letter}
        altered |= {cursor[:index] + other + cursor[index + 1 :] for other in others}
    for changed in altered:
        with pytest.raises(DroverError) as caught:
            cursors.open(SCOPE, changed)
        assert caught.value.reason is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize("cursor", ["", "x", "!!!", "é", "A" * 40, "QUJD" * 10, "a b"])
def test_text_that_is_no_cursor_is_refused(cursor):
    with pytest.raises(DroverError) as caught:
        Cursors(b"key").open(SCOPE, cursor)
    assert caught.value.reason is Reason.INVALID_ARGUMENT
