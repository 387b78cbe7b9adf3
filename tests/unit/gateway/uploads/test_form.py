"""A form is read alike however it is cut into pieces, and no more of a file is held than one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chassis.errors import DroverError, Reason
from gateway.uploads import form
from gateway.uploads.form import Field, FileStart, FormReader

TYPE = 'Multipart/Form-Data; charset=utf-8; boundary="b o"'
BODY = (
    b'--b o\r\nContent-Disposition: form-data; name="expires"\r\n\r\n3600\r\n'
    b"--b o\r\ncontent-type: Text/Plain; charset=utf-8\r\n"
    b'Content-Disposition: form-data; name=file; filename="\xc3\xa9"\r\n\r\n'
    b"one\r\n--b not\r\n-\r\n\r\n--b o\r\n"
    b'content-disposition: form-data; name="file"\r\n\r\n\r\n'
    b"--b o--\r\nand so on"
)
EVENTS = [
    Field("expires", "3600"),
    FileStart("é", "text/plain"),
    b"one\r\n--b not\r\n-\r\n",
    FileStart("", ""),
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(BODY)), max_size=8))
def test_where_a_form_is_cut_makes_no_difference(cuts: list[int]) -> None:
    reader = FormReader(TYPE, {"file"})
    events: list[object] = []
    ends = [*sorted(cuts), len(BODY)]
    for start, end in zip([0, *ends], ends, strict=False):
        for event in reader.feed(BODY[start:end]):
            if isinstance(event, bytes) and events and isinstance(events[-1], bytes):
                events[-1] += event
            else:
                events.append(event)
    reader.end()
    assert events == EVENTS


@pytest.mark.parametrize("preamble", [b"\r\n", b"nobody reads --b o\r\nthis\r\n", b"--b \r\n"])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_what_stands_before_the_first_boundary_is_passed_over(preamble: bytes, step: int) -> None:
    reader = FormReader(TYPE, {"file"})
    whole = preamble + BODY
    events = [each for at in range(0, len(whole), step) for each in reader.feed(whole[at:][:step])]
    reader.end()
    assert [each for each in events if not isinstance(each, bytes)] == [
        each for each in EVENTS if not isinstance(each, bytes)
    ]


def test_what_never_begins_is_refused_at_its_bound_or_end() -> None:
    reader = FormReader(TYPE, {"file"})
    assert reader.feed(b"--b" * 100) == []
    for late in (reader.end, lambda: reader.feed(b"x" * form.MAX_FIELD_BYTES)):
        with pytest.raises(DroverError, match="its first boundary is missing"):
            late()


def test_a_piece_of_a_file_is_passed_on_at_once() -> None:
    reader = FormReader(TYPE, {"file"})
    start, _, _ = BODY.partition(b"one")
    reader.feed(start)
    assert reader.feed(b"x" * 100_000) == [b"x" * 100_000]


def test_what_nearly_ends_a_file_all_the_time_is_refused() -> None:
    reader = FormReader("multipart/form-data; boundary=b", {"file"})
    reader.feed(b"--b\r\ncontent-disposition: form-data; name=file\r\n\r\n")
    near = b"\r\n--bX" * form.MAX_PARTS
    assert reader.feed(near) == [near]
    with pytest.raises(DroverError, match="a form has at most"):
        reader.feed(near)


def test_a_form_without_end_is_refused_at_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "MAX_PARTS", 3)
    part = b"--b\r\ncontent-disposition: form-data; name=file\r\n\r\n\r\n"
    reader = FormReader("multipart/form-data; boundary=b", {"file"})
    assert len(reader.feed(part * 3)) == 3
    with pytest.raises(DroverError, match="a form has at most 3 parts"):
        reader.feed(part)


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        f"multipart/form-data; boundary={'b' * 71}",
        "multipart/form-data; xboundary=b",
        "multipart/form-database; boundary=b",
    ],
)
def test_what_is_no_form_by_its_type_is_refused(content_type: str) -> None:
    with pytest.raises(DroverError, match="content-type: ") as refused:
        FormReader(content_type, {"file"})
    assert refused.value.reason is Reason.INVALID_ARGUMENT


def test_a_header_that_is_there_twice_is_refused() -> None:
    reader = FormReader("multipart/form-data; boundary=b", {"file"})
    line = b"content-disposition: form-data; name=file\r\n"
    with pytest.raises(DroverError, match="content-disposition twice"):
        reader.feed(b"--b\r\n" + line * 2 + b"\r\n\r\n")


def test_a_field_that_is_no_text_is_refused() -> None:
    reader = FormReader("multipart/form-data; boundary=b", {"file"})
    with pytest.raises(DroverError, match="note: is not UTF-8"):
        reader.feed(b"--b\r\ncontent-disposition: form-data; name=note\r\n\r\n\xff\r\n--b--")
