"""Which scopes open which routes, over every route that the gateway serves."""

from __future__ import annotations

import dataclasses

import pytest

from chassis.errors import DroverError, Reason
from drover.api.v1.annotations_pb2 import KEY_KIND_API, MethodRules
from drover.key.v1.api_key_service_pb2 import CreateApiKeyRequest, GetApiKeyRequest
from gateway import scopes
from gateway.access import terms
from gateway.services import SERVED
from gateway.transcode.openapi import describe
from gateway.transcode.routes import Contract, Route
from gateway.transcode.shape import ContractError

CONTRACT = Contract(SERVED)
ROUTES = CONTRACT.routes


def named(method: str) -> Route:
    (found,) = [route for route in ROUTES if route.method.name == method]
    return found


def opened(scope: str) -> list[Route]:
    return [route for route in ROUTES if scope in terms(route).opened_by]


def test_an_admin_opens_every_route_and_nobody_else_those_of_keys() -> None:
    assert opened("admin") == list(ROUTES)
    admins = [route for route in ROUTES if route.template.startswith("/v1/api_keys")]
    assert len(admins) == 4
    assert opened("write") == [route for route in ROUTES if route not in admins]
    assert all(terms(route).opened_by == {"admin"} for route in admins)


def test_who_reads_changes_nothing() -> None:
    readable = opened("read")
    assert readable == [route for route in opened("write") if route.verb == "GET"]


def test_an_area_is_opened_by_its_own_scopes_alone() -> None:
    areas = {route.template.split("/")[2] for route in opened("write")}
    assert {"agents", "environments", "sessions", "files", "vaults", "skills"} <= areas
    for area in areas:
        of_area = [route for route in ROUTES if route.template.split("/")[2] == area]
        assert opened(f"{area}:write") == of_area
        assert opened(f"{area}:read") == [route for route in of_area if route.verb == "GET"]
    assert opened("api_keys:write") == []


@pytest.mark.parametrize("template", ["/agents", "/v2/agents", "/v1", "/v1/{agent_id}", "/v1/a-b"])
def test_a_route_that_no_scope_could_name_does_not_start(template: str) -> None:
    with pytest.raises(ContractError):
        scopes.area(template)


def test_a_refusal_names_the_narrowest_scope() -> None:
    needed = {(route.verb, route.template): scopes.needed(route) for route in ROUTES}
    assert needed["GET", "/v1/sessions/{session_id}"] == "sessions:read"
    assert needed["POST", "/v1/memory_stores/{memory_store_id}/memories"] == "memory_stores:write"
    assert needed["DELETE", "/v1/api_keys/{api_key_id}"] == "admin"


def test_the_description_says_of_each_route_which_scope_it_needs() -> None:
    paths = describe(CONTRACT, "1")["paths"]
    told = {
        (route.verb, route.template): paths[route.template][route.verb.lower()].get("x-scope")
        for route in ROUTES
    }
    for route in ROUTES:
        takes_api_keys = KEY_KIND_API in terms(route).kinds
        expected = scopes.needed(route) if takes_api_keys else None
        assert told[route.verb, route.template] == expected


def test_a_request_about_keys_is_about_those_of_every_workspace() -> None:
    get = named("GetApiKey")
    prepare = scopes.preparing(get, {"agents"})
    assert prepare is not None
    request = GetApiKeyRequest(api_key_id="apikey_1")
    prepare(request)
    assert request.every_workspace
    assert scopes.preparing(named("CreateAgent"), {"agents"}) is None
    open_to_all = dataclasses.replace(get, rules=MethodRules())
    with pytest.raises(ContractError, match="not for admins only"):
        scopes.preparing(open_to_all, {"agents"})


def test_a_scope_of_no_area_is_refused_when_a_key_is_made() -> None:
    prepare = scopes.preparing(named("CreateApiKey"), {"agents", "sessions"})
    assert prepare is not None
    prepare(CreateApiKeyRequest(scopes=["admin", "read", "agents:write"]))
    with pytest.raises(DroverError) as refused:
        prepare(CreateApiKeyRequest(scopes=["read", "session:read"]))
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    assert refused.value.message.startswith(
        "scopes.1: there is no area 'session'; there are agents"
    )
