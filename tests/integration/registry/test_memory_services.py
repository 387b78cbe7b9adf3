from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from chassis.context import CallContext, call_context
from chassis.errors import Reason
from drover.memory.v1.memory_pb2 import MEMORY_VIEW_BASIC, MEMORY_VIEW_FULL
from tests.doubles.request_keys import answered, counted, metadata, named
from tests.integration.registry.memory_client import MemoryClient
from tests.integration.registry.refusal import refusal

if TYPE_CHECKING:
    import grpc.aio

WRITES = [
    "CreateMemoryStore",
    "UpdateMemoryStore",
    "ArchiveMemoryStore",
    "DeleteMemoryStore",
    "CreateMemory",
    "UpdateMemory",
    "DeleteMemory",
    "RedactMemoryVersion",
]


@pytest.fixture
def client(channel: grpc.aio.Channel) -> MemoryClient:
    return MemoryClient(channel)


async def test_a_store_is_read_back_and_changed_in_what_is_given(client: MemoryClient) -> None:
    made = await client.store(description="Of the team", metadata={"a": "1", "b": "2"})
    assert made.id.startswith("memstore_01")
    assert made.created_at == made.updated_at
    read = await client.call("GetMemoryStore", memory_store_id=made.id)
    assert read.memory_store == made
    patch = {"set": {"c": "3"}, "remove": ["a", "unknown"]}
    changed = await client.revise(made, "metadata", metadata=patch)
    assert (changed.name, changed.description) == (made.name, made.description)
    assert changed.metadata == {"b": "2", "c": "3"}
    assert changed.updated_at.ToNanoseconds() > made.updated_at.ToNanoseconds()
    assert await client.revise(made, name=made.name) == changed
    assert await client.revise(made, "name") == changed  # null keeps
    assert (await client.revise(made, "description")).description == ""
    many = {"set": {str(number): "" for number in range(15)}}
    assert (await refusal(client.revise(made, metadata=many))).rule.http == 400


async def test_stores_are_listed_in_pages_that_fit_their_filter(client: MemoryClient) -> None:
    made = [await client.store(str(number)) for number in range(3)]
    first = await client.call("ListMemoryStores", limit=2)
    assert list(first.data) == [made[2], made[1]]
    rest = await client.call("ListMemoryStores", page=first.next_page)
    assert (list(rest.data), rest.HasField("next_page")) == ([made[0]], False)
    other = client.call("ListMemoryStores", page=first.next_page, include_archived=True)
    assert "page: not a cursor" in (await refusal(other)).message
    late = await client.call("ListMemoryStores", created_at_gte=made[2].created_at)
    assert list(late.data) == [made[2]]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256])
async def test_bad_names_of_stores_are_refused(client: MemoryClient, name: str) -> None:
    assert (await refusal(client.store(name))).rule.http == 400


async def test_content_is_shown_where_the_view_has_it(client: MemoryClient) -> None:
    store = await client.store()
    made = await client.memory(store, content="text")
    assert not made.HasField("content")
    assert made.id.startswith("mem_01")
    assert made.memory_version_id.startswith("memver_01")
    assert made.content_sha256 == hashlib.sha256(b"text").hexdigest()
    empty = await client.memory(store, "/b", view=MEMORY_VIEW_FULL)
    assert empty.HasField("content")
    assert not (await client.change(made, content="new")).HasField("content")
    assert (await client.change(made, path="/c", view=MEMORY_VIEW_FULL)).content == "new"
    here = {"memory_store_id": store.id}
    version = {**here, "memory_version_id": made.memory_version_id}
    for rpc, fields, field in (
        ("GetMemory", {**here, "memory_id": made.id}, "memory"),
        ("GetMemoryVersion", version, "memory_version"),
    ):
        basic = getattr(await client.call(rpc, **fields, view=MEMORY_VIEW_BASIC), field)
        full = getattr(await client.call(rpc, **fields), field)
        assert (basic.HasField("content"), full.HasField("content")) == (False, True)
    for rpc in ("ListMemories", "ListMemoryVersions"):
        basic = await client.call(rpc, **here)
        full = await client.call(rpc, **here, view=MEMORY_VIEW_FULL)
        assert "content:" not in str(basic)
        assert "content:" in str(full)


async def test_pages_with_content_have_twenty_items_at_the_most(client: MemoryClient) -> None:
    store = await client.store()
    for number in range(21):
        await client.memory(store, f"/{number:02}")
    for rpc in ("ListMemories", "ListMemoryVersions"):
        whole = await client.call(rpc, memory_store_id=store.id, limit=100)
        assert (len(whole.data), whole.HasField("next_page")) == (21, False)
        full = await client.call(rpc, memory_store_id=store.id, limit=100, view=MEMORY_VIEW_FULL)
        assert len(full.data) == 20
        rest = await client.call(rpc, memory_store_id=store.id, page=full.next_page)
        assert list(rest.data) == list(whole.data)[20:]


async def test_directories_are_items_of_pages_and_cursors_fit_their_list(
    client: MemoryClient,
) -> None:
    store = await client.store()
    for path in ("/a/1", "/a/2", "/b", "/c/d/1"):
        await client.memory(store, path)
    here = {"memory_store_id": store.id, "depth": 1, "limit": 1}
    seen, page = [], None
    while True:
        answer = await client.call("ListMemories", **here, page=page)
        [item] = answer.data
        seen.append(item.memory.path or item.memory_prefix.path)
        if not answer.HasField("next_page"):
            break
        page = answer.next_page
    assert seen == ["/a/", "/b", "/c/"]
    below = await client.call("ListMemories", **{**here, "path_prefix": "/c/"})
    assert [item.memory_prefix.path for item in below.data] == ["/c/d/"]
    for fields in ({"depth": 0}, {"path_prefix": "/a/"}):
        call = client.call("ListMemories", **{**here, **fields}, page=page)
        assert "page: not a cursor" in (await refusal(call)).message
    for fields in ({"depth": 2}, {"path_prefix": "/a"}, {"path_prefix": "a/"}, {"limit": 0}):
        call = client.call("ListMemories", **{**here, **fields})
        assert (await refusal(call)).rule.http == 400


@pytest.mark.parametrize("path", ["a", "/a/../b", "/e\u0301", "/" + "x" * 1024])
async def test_bad_paths_are_refused_wherever_they_are_given(
    client: MemoryClient, path: str
) -> None:
    store = await client.store()
    made = await client.memory(store)
    for call in (client.memory(store, path), client.change(made, path=path)):
        refused = await refusal(call)
        assert refused.message.startswith("path: ")
        assert refused.rule.http == 400


async def test_large_content_is_taken_up_to_its_limit_in_bytes(client: MemoryClient) -> None:
    store = await client.store()
    made = await client.memory(store, content="\u00e9" * 51_200)
    assert made.content_size_bytes == 102_400
    for call in (
        client.memory(store, "/b", content="\u00e9" * 51_200 + "x"),
        client.change(made, content="x" * 102_401),
    ):
        refused = await refusal(call)
        assert refused.message.startswith("content: ")
        assert refused.rule.http == 400


async def test_conflicts_tell_what_they_are(client: MemoryClient) -> None:
    store = await client.store()
    made = await client.memory(store, "/a/b")
    taken = await refusal(client.memory(store, "/a"))
    assert (taken.reason, taken.error_code) == (Reason.CONFLICT, "memory_path_conflict_error")
    assert taken.metadata["conflicting_memory_id"] == made.id
    assert taken.metadata["conflicting_path"] == "/a/b"
    old = {"content_sha256": {"content_sha256": "0" * 64}}
    here = {"memory_store_id": store.id, "memory_id": made.id}
    for call in (
        client.change(made, content="x", precondition=old),
        client.call("DeleteMemory", **here, expected_content_sha256="0" * 64),
    ):
        stale = await refusal(call)
        assert (stale.reason, stale.error_code) == (
            Reason.CONFLICT,
            "memory_precondition_failed_error",
        )
    for bad in ({"content_sha256": {"content_sha256": "0" * 63}}, {}):
        assert (await refusal(client.change(made, precondition=bad))).rule.http == 400


async def test_versions_are_filtered_by_who_made_them_in_pages(client: MemoryClient) -> None:
    store = await client.store()
    by_key = {"api_actor": {"api_key_id": "apikey_1"}}
    by_session = {"session_actor": {"session_id": "sesn_1"}}
    made = await client.memory(store, actor=by_key)
    await client.change(made, content="2", actor=by_session)
    await client.call("DeleteMemory", memory_store_id=store.id, memory_id=made.id, actor=by_session)
    whole = await client.history(store)
    assert await client.history(store, session_id="sesn_1") == whole[:2]
    assert await client.history(store, api_key_id="apikey_1") == whole[2:]
    assert await client.history(store, service_account_id="svac_1") == []
    assert await client.history(store, operation="MEMORY_OPERATION_DELETED") == whole[:1]
    first = await client.call(
        "ListMemoryVersions", memory_store_id=store.id, session_id="sesn_1", limit=1
    )
    again = await client.history(store, session_id="sesn_1", page=first.next_page)
    assert again == whole[1:2]
    other = client.history(store, session_id="sesn_2", page=first.next_page)
    assert "page: not a cursor" in (await refusal(other)).message
    redacted = await client.call(
        "RedactMemoryVersion",
        memory_store_id=store.id,
        memory_version_id=whole[2].id,
        actor=by_key,
    )
    assert redacted.memory_version.redacted_by.api_actor.api_key_id == "apikey_1"


async def test_unknown_stores_and_those_of_others_are_answered_alike(client: MemoryClient) -> None:
    store = await client.store()
    made = await client.memory(store)
    places: Any = {
        "GetMemoryStore": {},
        "UpdateMemoryStore": {},
        "ArchiveMemoryStore": {},
        "DeleteMemoryStore": {},
        "CreateMemory": {"path": "/b"},
        "GetMemory": {"memory_id": made.id},
        "UpdateMemory": {"memory_id": made.id},
        "ListMemories": {},
        "DeleteMemory": {"memory_id": made.id},
        "GetMemoryVersion": {"memory_version_id": made.memory_version_id},
        "ListMemoryVersions": {},
        "RedactMemoryVersion": {"memory_version_id": made.memory_version_id},
    }
    for rpc, fields in places.items():
        with call_context(CallContext(workspace_id="wrkspc_other")):
            foreign = await refusal(client.call(rpc, memory_store_id=store.id, **fields))
        unknown = await refusal(client.call(rpc, memory_store_id="memstore_no", **fields))
        assert foreign.reason is unknown.reason is Reason.NOT_FOUND
        assert foreign.message == unknown.message.replace("memstore_no", store.id)
    with call_context(CallContext(workspace_id="wrkspc_other")):
        assert not (await client.call("ListMemoryStores", include_archived=True)).data


async def test_followers_are_told_by_revisions(client: MemoryClient) -> None:
    store = await client.store()
    made = await client.memory(store, content="x", view=MEMORY_VIEW_FULL)
    position = {"memory_store_id": store.id, "revision": 0}
    [changes] = (await client.call("FollowMemories", stores=[position])).stores
    assert (changes.revision, list(changes.memories)) == (1, [made])
    nobody = await refusal(client.call("FollowMemories", stores=[]))
    many = await refusal(client.call("FollowMemories", stores=[position] * 9))
    assert nobody.rule.http == many.rule.http == 400


async def prepared(client: MemoryClient, rpc: str) -> Any:
    """A request that can be done just once."""
    if rpc == "CreateMemoryStore":
        return client.request(rpc, name="Notes")
    store = await client.store()
    here = {"memory_store_id": store.id}
    if rpc == "CreateMemory":
        return client.request(rpc, **here, path="/a", content="1", view=MEMORY_VIEW_FULL)
    if rpc.endswith("Store"):
        extra = {"name": "Other"} if rpc == "UpdateMemoryStore" else {}
        return client.request(rpc, **here, **extra)
    made = await client.memory(store, content="1")
    if rpc == "RedactMemoryVersion":
        await client.change(made, content="2")
        return client.request(rpc, **here, memory_version_id=made.memory_version_id)
    extra = {"content": "2"} if rpc == "UpdateMemory" else {}
    return client.request(rpc, **here, memory_id=made.id, **extra)


async def test_a_repeated_request_gets_the_first_answer(client: MemoryClient) -> None:
    for rpc in WRITES:
        method = client.method(rpc)
        for keys in ((named(rpc), named(rpc)), (counted(f"c{rpc}", 0), counted(f"c{rpc}", 1))):
            request = await prepared(client, rpc)
            first, replayed = await answered(method, request, keys[0])
            assert not replayed
            assert await answered(method, request, keys[1]) == (first, True)
        refused = await refusal(method(request, metadata=metadata(named(rpc, "another"))))
        assert refused.reason is Reason.CONFLICT
