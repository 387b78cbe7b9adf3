"""How processes know each other by what their connection shows; `identity` implements it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import grpc


class Tls(Protocol):
    """What a process shows its peers, and what it demands of them."""

    def server(self) -> grpc.ServerCredentials:
        """What a server shows and demands."""
        ...

    def channel(self, callee: str) -> tuple[grpc.ChannelCredentials, str]:
        """The same of a channel to `callee`, and the name that its server must show."""
        ...

    def refusal(self, method: str, peer: Mapping[str, Iterable[bytes]]) -> str:
        """Why `peer`, gRPC's authentication context, may not call `/package.Service/Method`."""
        ...
