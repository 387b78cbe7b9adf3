"""The web tools, which the vault proxy runs: it is the one with a way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from chassis.grpc.status import from_rpc_error
from drover.vault.v1.credential_proxy_service_pb2 import FetchRequest, SearchRequest
from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceStub
from services.hands.domain.web import FETCH, SECONDS

if TYPE_CHECKING:
    import grpc.aio

    from chassis.secret import Secret
    from drover.vault.v1.credential_proxy_service_pb2 import FetchResponse, SearchResponse
    from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceAsyncStub
    from services.hands.domain.web import WebCall


class WebClient:
    """Asks for pages and searches over gRPC."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._service: CredentialProxyServiceAsyncStub = CredentialProxyServiceStub(channel)

    async def ask(
        self, grant: Secret, call_id: str, call: WebCall
    ) -> FetchResponse | SearchResponse:
        """The answer to a call. Raises `DroverError`."""
        text = grant.open()
        try:
            if call.tool == FETCH:
                return await self._service.Fetch(
                    FetchRequest(
                        grant=text, url=call.text, settings=call.settings, call_id=call_id
                    ),
                    timeout=SECONDS,
                )
            return await self._service.Search(
                SearchRequest(grant=text, query=call.text, settings=call.settings, call_id=call_id),
                timeout=SECONDS,
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error, "the vault proxy") from error
