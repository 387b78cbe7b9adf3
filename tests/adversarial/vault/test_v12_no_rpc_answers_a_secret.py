"""V12: no RPC of any service answers a stored credential: read from all descriptors."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.api import field_behavior_pb2 as behavior
from google.protobuf.descriptor import FieldDescriptor

import drover.vault.v1.vault_service_pb2 as anchor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor import Descriptor, FileDescriptor, MethodDescriptor

_GENERATED = Path(anchor.__file__).parents[3]
_TEXT = {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES}
_SPEAKS_OF_A_SECRET = re.compile(r"secret|token|password|passphrase|api_key|private_key|grant")
_NO_SECRETS = {
    "drover.vault.v1.OauthRefresh.token_endpoint",
    "drover.vault.v1.NewOauthRefresh.token_endpoint",
    "drover.vault.v1.EnvironmentVariableAuth.secret_name",
    "drover.vault.v1.NewEnvironmentVariable.secret_name",
    "drover.key.v1.GetApiKeyRequest.api_key_id",
    "drover.key.v1.RevokeApiKeyRequest.api_key_id",
    "drover.memory.v1.ApiActor.api_key_id",
    "drover.memory.v1.ListMemoryVersionsRequest.api_key_id",
}
"""Where a secret is sent, what a variable is called, and what an API key is told by."""

_ISSUED = {
    "drover.environment.v1.EnvironmentKey.key",
    "drover.key.v1.ApiKey.key",
    "drover.work.v1.Work.secret",
    "drover.vault.v1.OpenGrantResponse.grant",
}
"""What Drover makes itself, and gives to whom it is for, once. None opens anything outside."""

_SHARED = {"drover.session.v1.GithubRepositoryResource.authorization_token"}
"""In a message that requests and answers share. The gateway writes no INPUT_ONLY field, and the
session service takes it out before anything is kept (tests/unit/session/test_resources.py)."""


def files() -> list[FileDescriptor]:
    found = []
    for path in sorted(_GENERATED.rglob("drover/**/*_pb2.py")):
        name = ".".join(path.relative_to(_GENERATED).with_suffix("").parts)
        found.append(importlib.import_module(name).DESCRIPTOR)
    return found


FILES = files()


def messages(of: Iterable[Descriptor]) -> Iterator[Descriptor]:
    for message in of:
        yield message
        yield from messages(message.nested_types)


def fields() -> Iterator[FieldDescriptor]:
    for file in FILES:
        for message in messages(file.message_types_by_name.values()):
            yield from message.fields


def methods() -> Iterator[MethodDescriptor]:
    for file in FILES:
        for service in file.services_by_name.values():
            yield from service.methods


def reachable(start: Descriptor) -> Iterator[FieldDescriptor]:
    """Every field of a message, and of all that is in it at any depth."""
    seen, waiting = {start.full_name}, [start]
    while waiting:
        for field in waiting.pop().fields:
            yield field
            below = field.message_type
            if below is not None and below.full_name not in seen:
                seen.add(below.full_name)
                waiting.append(below)


def redacted(field: FieldDescriptor) -> bool:
    return bool(field.GetOptions().debug_redact)


def input_only(field: FieldDescriptor) -> bool:
    return behavior.INPUT_ONLY in field.GetOptions().Extensions[behavior.field_behavior]


def answered() -> dict[str, list[str]]:
    """By each marked field that an answer can hold, the methods whose answers can."""
    found = defaultdict(list)
    for method in methods():
        for field in reachable(method.output_type):
            if redacted(field) or input_only(field):
                found[field.full_name].append(method.full_name)
    return dict(found)


def test_the_walk_sees_every_service() -> None:
    names = {method.containing_service.name for method in methods()}
    assert {"VaultService", "VaultCredentialService", "CredentialProxyService"} <= names
    assert {
        "SessionService",
        "HandsService",
        "BrainService",
        "AgentService",
        "WorkService",
    } <= names


def test_no_answer_of_any_rpc_can_hold_a_secret_that_was_stored() -> None:
    assert set(answered()) == _ISSUED | _SHARED


def test_every_field_that_speaks_of_a_secret_is_marked_as_one() -> None:
    unmarked = [
        field.full_name
        for field in fields()
        if field.type in _TEXT
        and _SPEAKS_OF_A_SECRET.search(field.name)
        and field.full_name not in _NO_SECRETS
        and not redacted(field)
    ]
    assert unmarked == []


def test_every_secret_that_goes_to_the_vault_is_write_only() -> None:
    vault = [field for field in fields() if field.full_name.startswith("drover.vault.v1.")]
    marked = {field.full_name for field in vault if redacted(field)}
    grants = {field.full_name for field in vault if field.name == "grant"}
    assert len(marked - grants) >= 11
    assert {field.full_name for field in vault if input_only(field)} == marked - grants


def test_no_service_but_the_vault_proxys_own_takes_one() -> None:
    takers = defaultdict(set)
    for method in methods():
        for field in reachable(method.input_type):
            if input_only(field):
                takers[method.full_name].add(field.full_name)
    others = {
        name: taken - _SHARED
        for name, taken in takers.items()
        if not name.startswith("drover.vault.v1.")
    }
    rotated = "drover.session.v1.UpdateSessionResourceRequest.authorization_token"
    assert {one for taken in others.values() for one in taken} <= {rotated}


@pytest.mark.parametrize("name", sorted(_ISSUED | _SHARED | _NO_SECRETS))
def test_what_is_excepted_is_still_there(name: str) -> None:
    assert name in {field.full_name for field in fields()}
