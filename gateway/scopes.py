"""What the scopes of API keys open: told from a route's own path and verb, with no list to forget.

`admin` opens all, `write` everything of its workspace but the keys, `read` what changes nothing of
that. An area is the first segment of a path behind the version: `sessions:write` opens all below
`/v1/sessions`, `sessions:read` what changes nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chassis.errors import DroverError, Reason
from drover.key.v1.api_key_service_pb2 import CreateApiKeyRequest
from gateway.transcode.shape import ContractError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gateway.transcode.routes import Route

ADMIN: Final = "admin"
READ: Final = "read"
WRITE: Final = "write"
ANY: Final = ""
"""What every key has, whatever its scopes."""

_EVERY: Final = "every_workspace"


def area(template: str) -> str:
    """The area of a route's path. Raises `ContractError` if it has none."""
    root, version, name, *_ = *template.split("/"), "", ""
    if root or version != "v1" or not name.replace("_", "").isalnum():
        msg = f"{template}: no scope has a name for it"
        raise ContractError(msg)
    return name


def needed(route: Route) -> str:
    """The narrowest scope that opens a route: what a refusal names. Raises as `area`."""
    if route.rules.admin:
        return ADMIN
    return f"{area(route.template)}:{READ if route.verb == 'GET' else WRITE}"


def opening(scope: str) -> frozenset[str]:
    """All scopes that open what `scope` does; none for what every key opens."""
    if scope == ANY:
        return frozenset()
    name, _, verb = scope.rpartition(":")
    if not name:
        return frozenset({ADMIN})
    return frozenset({ADMIN, WRITE, f"{name}:{WRITE}", verb, scope})


def preparing(route: Route, areas: Collection[str]) -> Callable[[Any], None] | None:
    """What makes a request about API keys an admin's; `None` for requests about other things.

    It raises INVALID_ARGUMENT for scopes of a key that would open nothing, having no area. Raises
    `ContractError` for a route that is about every workspace and not admins' only.
    """
    if _EVERY not in route.method.input_type.fields_by_name:
        return None
    if not route.rules.admin:
        msg = f"{route.template}: it is about every workspace, and not for admins only"
        raise ContractError(msg)

    def prepare(message: Any) -> None:  # noqa: ANN401  # any with such a field
        message.every_workspace = True
        if isinstance(message, CreateApiKeyRequest):
            for index, scope in enumerate(message.scopes):
                name = scope.rpartition(":")[0]
                if name and name not in areas:
                    known = ", ".join(sorted(areas))
                    raise DroverError(
                        Reason.INVALID_ARGUMENT,
                        f"scopes.{index}: there is no area {name!r}; there are {known}",
                    )

    return prepare
