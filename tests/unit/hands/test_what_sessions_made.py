"""What a session has made is told from what it was given, whoever may download it."""

from __future__ import annotations

from typing import Any

from drover.file.v1 import file_service_pb2 as pb
from drover.file.v1.file_pb2 import File
from tests.doubles.hands_registry import registry_double


async def test_a_copy_is_nothing_that_a_session_made() -> None:
    pages = {
        "": [File(filename="out", created_at={"seconds": 2}, downloadable=True)],
        "more": [
            File(filename="given", copy_of="file_1", created_at={"seconds": 1}, downloadable=True),
            File(filename="out", created_at={"seconds": 1}, downloadable=True),
        ],
    }

    async def page(request: Any, _context: object) -> pb.ListFilesResponse:
        return pb.ListFilesResponse(
            data=pages[request.page], next_page=None if request.page else "more"
        )

    async with registry_double() as (double, registry):
        double.list_files = page
        assert await registry.made("wrkspc_default", "sesn_1") == {"out": 2_000_000_000}
