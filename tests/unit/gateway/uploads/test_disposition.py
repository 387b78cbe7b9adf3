from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import DroverError
from gateway.uploads.disposition import attachment, kept, read, safe_type


def told(disposition: bytes) -> tuple[str, str]:
    part = read({b"content-disposition": disposition})
    return part.name, part.filename


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_a_name_of_any_characters_is_read_as_the_official_client_writes_it(name: str) -> None:
    written = name.replace("\\", "\\\\").replace('"', "%22").encode()
    read_back = told(b'form-data; name="file"; filename="' + written + b'"')
    for escaped, character in (("%22", '"'), ("%0D", "\r"), ("%0A", "\n")):
        name = name.replace(escaped, character)
    assert read_back == ("file", name)


def test_what_browsers_escape_is_read_and_no_other_percent_sign() -> None:
    sent = b'form-data; name="file"; filename="a%22b%0D%0Ac%41%2F100%.txt"'
    assert told(sent)[1] == 'a"b\r\nc%41%2F100%.txt'


@pytest.mark.parametrize(
    ("disposition", "expected"),
    [
        (b"form-data; name=a", ("a", "")),
        (b"Form-Data ;NAME = a ; FileName = b ", ("a", "b")),
        (b'form-data; name="a"; filename="', None),
        (b'form-data; name="a" filename="b"', None),
        (b"form-data; name=a; filename*=UTF-16''b", None),
        (b"form-data; name=a; filename*=UTF-8''%FF", None),
        (b"form-data; filename=b", None),
        (b"form-data, name=a", None),
        (b"", None),
    ],
)
def test_what_is_no_disposition_is_refused(
    disposition: bytes, expected: tuple[str, str] | None
) -> None:
    if expected is not None:
        assert told(disposition) == expected
        return
    with pytest.raises(DroverError):
        told(disposition)


@pytest.mark.parametrize("value", [b" " * 2000 + b'"', b'"' + b'\\"' * 1000, b";a=" * 700 + b'"'])
def test_a_header_costs_no_more_than_its_length(value: bytes) -> None:
    began = time.process_time()
    with pytest.raises(DroverError):
        told(b"form-data; name=" + value)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("filename", "media_type", "name"),
    [
        ("a.txt", "image/png", "a.txt"),
        ("../../etc/passwd", "", "passwd"),
        ("C:\\dir\\a.txt", "", "a.txt"),
        ("dir/", "text/plain", "unnamed.txt"),
        ("", "image/jpeg", "unnamed.jpg"),
        ("", "", "unnamed.bin"),
        ("", "x/of-our-own", "unnamed"),
    ],
)
def test_the_last_part_of_a_path_is_kept_or_else_the_type(
    filename: str, media_type: str, name: str
) -> None:
    assert kept(filename, media_type) == name


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_name_breaks_out_of_its_header(name: str) -> None:
    header = attachment(name)
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2


def test_only_a_media_type_is_served_as_one() -> None:
    assert safe_type("text/html") == "text/html"
    for odd in ("", "text", "text/html; charset=x", "a/b\r\nx: y", "a/b/c"):
        assert safe_type(odd) == "application/octet-stream"
