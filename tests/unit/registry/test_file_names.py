"""What files may be called, and what their names say of their kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chassis.errors import DroverError, Reason
from drover.file.v1.file_service_pb2 import FileHeader
from services.registry.domain.files.file import Content, Upload, new_copy, new_file, new_upload
from services.registry.domain.files.names import Kinds

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
KINDS = Kinds()


def upload(**said: Any) -> Upload:
    return new_upload(FileHeader(**{"filename": "a.txt", **said}), KINDS)


@pytest.mark.parametrize(
    "name",
    ["a", "x" * 255, "🐄" * 255, "Résumé (2) 漢字.pdf", "it's.txt", ".hidden", "a..b", " spaced "],
)
def test_names_of_any_script_are_taken(name: str) -> None:
    assert upload(filename=name).filename == name


@pytest.mark.parametrize(
    "name",
    ["", "x" * 256, "a/b", "a\\b", 'a"b', "a*", "a?", "<a>", "a:b", "a|b", "a\0b", "a\nb", "a\x7fb",
     "a\x85b", ".", ".."],
)  # fmt: skip
def test_names_that_some_system_could_not_store_are_refused(name: str) -> None:
    with pytest.raises(DroverError, match=r"^INVALID_ARGUMENT: filename: ") as refused:
        upload(filename=name)
    assert refused.value.reason is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize("path", ["a", "a/b/c.txt", 'what "it" is?*', "a\\b", "…/x", "é" * 512])
def test_what_sessions_make_is_called_by_its_path(path: str) -> None:
    assert upload(filename=path, session_id="sesn_1").filename == path


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "a\0", "a/b\n", "é" * 513]
)
def test_what_is_no_path_below_the_outputs_is_refused(path: str) -> None:
    with pytest.raises(DroverError, match="filename: "):
        upload(filename=path, session_id="sesn_1")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "text/plain"),
        ("A.PDF", "application/pdf"),
        ("a.tar.gz", "application/gzip"),
        ("table.csv", "text/csv"),
        ("notes.md", "text/markdown"),
        ("p.jpeg", "image/jpeg"),
        ("p.webp", "image/webp"),
        (
            "t.xlsx",
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        ),
        ("a", "application/octet-stream"),
        ("a.unheard", "application/octet-stream"),
        ("v1.5/readme", "application/octet-stream"),
    ],
)
def test_kind_comes_from_the_name_where_none_is_given(name: str, kind: str) -> None:
    session_id = "sesn_1" if "/" in name else ""
    assert upload(filename=name, session_id=session_id).mime_type == kind
    given = upload(filename=name, session_id=session_id, mime_type="Text/X-Other; charset=UTF-8")
    assert given.mime_type == "text/x-other; charset=UTF-8"


@pytest.mark.parametrize(
    "kind",
    ["text", "text/", "/plain", "text/pl ain", "text/plain;", "a/b\r\nx: y", "a/" + "b" * 255],
)
def test_what_is_no_media_type_is_refused(kind: str) -> None:
    with pytest.raises(DroverError, match="mime_type: "):
        upload(mime_type=kind)


def test_a_copy_is_a_sessions_and_outlives_the_file() -> None:
    said = upload(expires_in_seconds=3600)
    file = new_file(said, Content(3, "abc"), "file_1", NOON)
    assert file.expires_at.ToDatetime(UTC) == NOON + timedelta(hours=1)
    copy = new_copy(file, "file_2", "sesn_1", NOON + timedelta(minutes=1))
    assert (copy.id, copy.scope.id, copy.sha256, copy.size_bytes) == ("file_2", "sesn_1", "abc", 3)
    assert copy.created_at.ToDatetime(UTC) == NOON + timedelta(minutes=1)
    assert not copy.HasField("expires_at")
    assert not file.HasField("scope")
