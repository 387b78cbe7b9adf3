"""Which routes may be opened to workers at all, and what of a session is remembered for them."""

from __future__ import annotations

from typing import Any

import pytest

from chassis.errors import DroverError, Reason
from drover.api.v1.annotations_pb2 import (
    KEY_KIND_API,
    KEY_KIND_ENVIRONMENT,
    KEY_KIND_WORK_ITEM,
    MethodRules,
)
from drover.event.v1.content_pb2 import ContentBlock
from drover.session.v1.session_service_pb2 import EmitEventsRequest, GetSessionResponse
from gateway import workers
from gateway.access import check_request, kinds
from gateway.auth import Caller
from gateway.transcode.shape import ContractError
from gateway.workers import Workers


def test_a_route_that_says_nothing_takes_api_keys_alone() -> None:
    assert kinds(MethodRules(), "/v1/agents") == {KEY_KIND_API}


@pytest.mark.parametrize("kind", [KEY_KIND_ENVIRONMENT, KEY_KIND_WORK_ITEM])
def test_a_route_about_nothing_of_a_workers_cannot_be_opened_to_workers(kind: Any) -> None:
    with pytest.raises(ContractError, match="/v1/agents"):
        kinds(MethodRules(keys=[KEY_KIND_API, kind]), "/v1/agents")
    for path in ("sessions/{session_id}", "memory_stores/{memory_store_id}", "skills/{skill_id}"):
        assert kinds(MethodRules(keys=[kind]), f"/v1/{path}") == {kind}


async def test_no_more_sessions_are_remembered_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "_SESSIONS", 2)
    asked: list[str] = []

    async def session(request: Any, _key: object = None) -> tuple[Any, bool]:
        asked.append(request.session_id)
        if request.session_id == "gone":
            raise DroverError(Reason.NOT_FOUND, "session gone not found")
        return GetSessionResponse(session={"environment_id": f"of {request.session_id}"}), False

    async def nobody(_request: Any, _key: object = None) -> tuple[Any, bool]:
        raise NotImplementedError

    known = Workers(nobody, nobody, session)
    for session_id in ("a", "b", "a", "c", "a", "b"):
        assert await known.environment_of("wrkspc_1", session_id) == f"of {session_id}"
    assert asked == ["a", "b", "c", "b"]
    assert await known.environment_of("wrkspc_2", "b") == "of b"
    for _ in range(2):
        with pytest.raises(DroverError):
            await known.environment_of("wrkspc_1", "gone")
    assert asked[-3:] == ["b", "gone", "gone"]


@pytest.mark.parametrize("result", ["user_tool_result", "user_custom_tool_result"])
@pytest.mark.parametrize("block", ["image", "document"])
def test_workers_show_what_they_bring_and_no_file_of_the_workspace(result: str, block: str) -> None:
    shown = ContentBlock(**{block: {"source": {"file": {"file_id": "file_1"}}}})  # type: ignore[arg-type]
    brought = ContentBlock(
        **{block: {"source": {"base64": {"data": "AA==", "media_type": "image/png"}}}}  # type: ignore[arg-type]
    )

    def request(*content: ContentBlock) -> EmitEventsRequest:
        return EmitEventsRequest(events=[{result: {"content": content}}])  # type: ignore[list-item]

    check_request(Caller("wrkspc_1", b""), request(brought, shown))
    for kind in (KEY_KIND_ENVIRONMENT, KEY_KIND_WORK_ITEM):
        worker = Caller("wrkspc_1", b"", kind)
        check_request(worker, request(brought))
        with pytest.raises(DroverError, match=r"events\.0\.content\.1\.source") as refused:
            check_request(worker, request(brought, shown))
        assert refused.value.reason is Reason.PERMISSION_DENIED
