"""API keys of other workspaces, for tests about who sees what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from tests.e2e.stack import Stack


def new_api_key(stack: Stack, workspace_id: str, *scopes: str, **fields: Any) -> dict[str, Any]:
    """Makes a key of a workspace, which is there from then on; `write` opens all of it."""
    body = {"workspace_id": workspace_id, "scopes": scopes or ("write",), **fields}
    answer = httpx2.post(f"{stack.url}/v1/api_keys", headers=stack.headers, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made
