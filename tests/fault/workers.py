"""What workers of a self-hosted environment ask, as requests with the keys that they need."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from tests.fault.repeating import Ground

_NUMBERS = itertools.count()


def self_hosted(ground: Ground) -> str:
    """The id of a new environment whose tools workers run."""
    with ground.observer as client:
        made = client.beta.environments.create(
            name=f"farm {next(_NUMBERS)}", config={"type": "self_hosted"}
        )
    return made.id


def environment_key(ground: Ground, environment_id: str) -> dict[str, Any]:
    """A new key of an environment."""
    path = f"/v1/environments/{environment_id}/keys"
    return ask(ground, "POST", path, ground.fleet.headers["x-api-key"])


def a_key(ground: Ground) -> tuple[str, None]:
    """The path of a new key, to be deleted."""
    key = environment_key(ground, self_hosted(ground))
    return f"/v1/environments/{key['environment_id']}/keys/{key['id']}", None


def polled(ground: Ground, *, acknowledged: bool = False) -> tuple[str, str]:
    """The path of a work item that a worker was given, and the key of its environment."""
    environment_id = self_hosted(ground)
    with ground.observer as client:
        client.beta.sessions.create(
            agent=ground.agent_id,
            environment_id=environment_id,
            initial_events=[{"type": "user.message", "content": [{"type": "text", "text": "go"}]}],
        )
    key = environment_key(ground, environment_id)["key"]
    queue = f"/v1/environments/{environment_id}/work"
    item = f"{queue}/{ask(ground, 'GET', f'{queue}/poll', key)['id']}"
    if acknowledged:
        ask(ground, "POST", f"{item}/ack", key)
    return item, key


def ask(ground: Ground, verb: str, path: str, key: str) -> Any:
    """The answer to a request that nothing happens to."""
    headers = ground.fleet.headers | {"x-api-key": key}
    url = f"{ground.fleet.url('gateway-2')}{path}"
    answer = httpx2.request(verb, url, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()
