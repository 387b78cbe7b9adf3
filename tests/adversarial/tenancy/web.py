"""The same requests over HTTP, by whoever has a key."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import httpx2

from gateway.services import SERVED
from gateway.transcode.routes import Contract, Kind
from tests.adversarial.tenancy.asking import Told, filled, masked
from tests.e2e.stack import BETA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.transcode.routes import Route
    from tests.adversarial.tenancy.asking import Ask

_MEMORY_BETA: Final = "agent-memory-2026-07-22"


@cache
def routes() -> Mapping[str, Sequence[Route]]:
    """The routes of each method, by its name and its service's."""
    found: dict[str, list[Route]] = {}
    for route in Contract(SERVED).routes:
        name = f"{route.method.containing_service.name}.{route.method.name}"
        found.setdefault(name, []).append(route)
    return found


@dataclass
class Web:
    """The gateway of a running stack."""

    http: httpx2.Client

    def ask(self, key: str, ask: Ask, route: Route, ids: Mapping[str, str], **headers: str) -> Told:
        """What a route answers to who has a key. Of a stream that it opens, no more than that."""
        path = route.template
        for name in route.request.path:
            path = path.replace(f"{{{name}}}", ids[ask.at.get(name, name)])
        sent: dict[str, Any] = {"params": filled(ask.query, ids)} if ask.query else {}
        if route.form is not None:
            sent["files"] = {route.form.part: _file(ask.pieces[0])}
        elif ask.body is not None:
            sent["json"] = filled(ask.body, ids)
        beta = _MEMORY_BETA if route.rules.other_beta else BETA
        known = {"authorization": f"Bearer {key}", "anthropic-beta": beta} | headers
        request = self.http.build_request(route.verb, path, headers=known, **sent)
        with closing(self.http.send(request, stream=True)) as response:
            text = ""
            if response.status_code != httpx2.codes.OK or route.kind is not Kind.EVENTS:
                text = response.read().decode(errors="replace")
        return Told(str(response.status_code), masked(text, ids))


def _file(piece: Mapping[str, Any]) -> tuple[str, bytes]:
    if "file" in piece:
        return piece["file"]["path"], piece["file"]["data"]
    return "a.txt", piece["data"]
