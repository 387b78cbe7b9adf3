"""The table of who may call what names every method that there is, and nothing else."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.api import annotations_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

import drover
from gateway.services import SERVED
from identity.table import EVERYONE, PUBLIC, TABLE, Caller, callers, may_call

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor, MethodDescriptor

GET = "/drover.session.v1.SessionService/GetSession"


def contract() -> list[FileDescriptor]:
    """The descriptors of all protocols that processes of Drover speak."""
    root = Path(next(iter(drover.__path__)))
    names = sorted(root.rglob("*_pb2.py"))
    modules = [
        importlib.import_module(".".join(name.relative_to(root.parent).with_suffix("").parts))
        for name in names
    ]
    return [module.DESCRIPTOR for module in (*modules, health_pb2, reflection_pb2)]


METHODS = [
    method
    for file in contract()
    for service in file.services_by_name.values()
    for method in service.methods
]


def path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def test_every_method_of_every_service_is_in_the_table_and_nothing_else_is() -> None:
    told = {f"/{service}/{name}" for service, methods in TABLE.items() for name in methods}
    assert told == {path(method) for method in METHODS}
    assert len(told) > 100


def test_no_method_is_nobodys() -> None:
    assert [path(method) for method in METHODS if not callers(path(method))] == []


def test_what_has_a_route_and_nothing_else_is_both_the_gateways_and_the_operators() -> None:
    for method in METHODS:
        routed = method.GetOptions().HasExtension(annotations_pb2.http)
        if not path(method).startswith("/grpc."):
            assert (callers(path(method)) >= PUBLIC) is routed, path(method)
        if routed:
            assert method.containing_service in SERVED


def test_all_may_ask_whether_a_service_is_well_and_what_it_offers() -> None:
    assert callers("/grpc.health.v1.Health/Check") == EVERYONE
    reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    assert callers(reflection) == EVERYONE


@pytest.mark.parametrize(
    ("caller", "method", "may"),
    [
        ("brain", GET, True),
        ("vault_proxy", GET, True),
        ("hands", GET, False),
        ("registry", GET, False),
        ("brain", "/drover.session.v1.SessionService/HoldLease", True),
        ("gateway", "/drover.session.v1.SessionService/HoldLease", False),
        ("operator", "/drover.session.v1.SessionService/HoldLease", False),
        ("session", "/drover.hands.v1.HandsService/Execute", False),
        ("brain", "/drover.vault.v1.CredentialProxyService/Fetch", False),
    ],
)
def test_a_caller_may_what_the_table_says(caller: str, method: str, may: bool) -> None:
    assert may_call(caller, method) is may


@pytest.mark.parametrize("caller", ["", "Brain", "brain.drover.internal", "drover", "*"])
def test_who_is_no_caller_may_nothing_not_even_ask_for_health(caller: str) -> None:
    assert not any(may_call(caller, path(method)) for method in METHODS)


@pytest.mark.parametrize(
    "method",
    [
        "",
        "/",
        GET[1:],
        f"/{GET}",
        f"{GET}/",
        GET.lower(),
        GET.replace("GetSession", ""),
        GET.replace("GetSession", "GetSessions"),
        "/drover.session.v2.SessionService/GetSession",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ],
)
def test_a_method_that_the_table_does_not_know_is_nobodys(method: str) -> None:
    assert not any(may_call(caller, method) for caller in Caller)
