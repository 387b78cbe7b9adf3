"""A1: vaults and credentials of another workspace are not there: every RPC, generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from drover.vault.v1 import (
    vault_audit_service_pb2,
    vault_credential_service_pb2,
    vault_service_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

    from tests.e2e.stack import Stack

HOME, OTHER = "wrkspc_default", "wrkspc_other"
SERVICES = [
    vault_service_pb2.DESCRIPTOR.services_by_name["VaultService"],
    vault_credential_service_pb2.DESCRIPTOR.services_by_name["VaultCredentialService"],
]
METHODS = [
    method
    for service in SERVICES
    for method in service.methods
    if {"vault_id", "vault_ids"} & {field.name for field in method.input_type.fields}
]
BEARER: dict[str, Any] = {"mcp_server_url": "https://a.example", "token": "t"}
FILLED: dict[str, dict[str, Any]] = {
    "CreateCredential": {"auth": {"static_bearer": BEARER}},
    "UpdateCredential": {"auth": {"static_bearer": {"token": "u"}}, "display_name": "x"},
    "UpdateVault": {"display_name": "x"},
}


@pytest.fixture
def channel(stack: Stack) -> Iterator[grpc.Channel]:
    with stack.channel("vault_proxy") as channel:
        yield channel


@pytest.fixture
def ids(stack: Stack) -> dict[str, str]:
    with stack.client() as client:
        vault = client.beta.vaults.create(display_name="Ada")
        auth: Any = BEARER | {"type": "static_bearer"}
        made = client.beta.vaults.credentials.create(vault.id, auth=auth)
    return {"vault_id": vault.id, "credential_id": made.id}


def call(
    stack: Stack, channel: grpc.Channel, method: MethodDescriptor, workspace: str, **fields: Any
) -> Message:
    request_type, answer_type = map(GetMessageClass, (method.input_type, method.output_type))
    ask = channel.unary_unary(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=request_type.SerializeToString,
        response_deserializer=answer_type.FromString,
    )
    metadata = (
        ("authorization", f"Bearer {stack.token}"),
        ("x-drover-workspace-id", workspace),
    )
    return ask(request_type(**fields), metadata=metadata, timeout=10)  # type: ignore[no-any-return]


def filled(method: MethodDescriptor, ids: dict[str, str]) -> dict[str, Any]:
    """A request that would have an effect, were the ids the caller's own."""
    names = {field.name for field in method.input_type.fields}
    given: dict[str, Any] = ids | {"vault_ids": [ids["vault_id"]]} | FILLED.get(method.name, {})
    return {name: value for name, value in given.items() if name in names}


def refusal(
    stack: Stack, channel: grpc.Channel, method: MethodDescriptor, ids: dict[str, str]
) -> tuple[Any, str]:
    """How another workspace is refused, but for the ids."""
    with pytest.raises(grpc.RpcError) as refused:
        call(stack, channel, method, OTHER, **filled(method, ids))
    text = str(refused.value.details())  # type: ignore[attr-defined]
    for name in ids.values():
        text = text.replace(name, "ID")
    return refused.value.code(), text  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_answer_is_that_for_an_id_that_never_was(
    stack: Stack, channel: grpc.Channel, ids: dict[str, str], method: MethodDescriptor
) -> None:
    foreign = refusal(stack, channel, method, ids)
    unknown = {"vault_id": "vlt_unknown", "credential_id": "vcrd_unknown"}
    assert foreign == refusal(stack, channel, method, unknown)
    assert foreign[0] is grpc.StatusCode.NOT_FOUND
    with stack.client() as client:  # and nothing came of it
        found = client.beta.vaults.credentials.retrieve(
            ids["credential_id"], vault_id=ids["vault_id"]
        )
        assert (found.archived_at, found.display_name) == (None, None)


def test_lists_show_nothing_of_another_workspace(
    stack: Stack, channel: grpc.Channel, ids: dict[str, str]
) -> None:
    listing = SERVICES[0].methods_by_name["ListVaults"]
    mine: Any = call(stack, channel, listing, HOME)
    theirs: Any = call(stack, channel, listing, OTHER)
    assert ids["vault_id"] in [vault.id for vault in mine.data]
    assert list(theirs.data) == []
    audit = vault_audit_service_pb2.DESCRIPTOR.services_by_name["VaultAuditService"]
    entries: Any = call(stack, channel, audit.methods_by_name["ListVaultAudit"], OTHER, **ids)
    assert list(entries.data) == []


def test_cursor_of_one_workspace_is_none_of_anothers(stack: Stack, channel: grpc.Channel) -> None:
    with stack.client() as client:
        for name in ("Ada", "Grace"):
            client.beta.vaults.create(display_name=name)
    listing = SERVICES[0].methods_by_name["ListVaults"]
    page: Any = call(stack, channel, listing, HOME, limit=1)
    with pytest.raises(grpc.RpcError) as refused:
        call(stack, channel, listing, OTHER, limit=1, page=page.next_page)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]


def test_no_rpc_answers_without_the_installations_secret(channel: grpc.Channel) -> None:
    for method in METHODS:
        request = GetMessageClass(method.input_type)()
        ask = channel.unary_unary(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=lambda raw: raw,
        )
        with pytest.raises(grpc.RpcError) as refused:
            ask(request, timeout=10)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
