"""The services of an installation, as an operator reaches them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc

from chassis.context import DEFAULT_WORKSPACE, WORKSPACE_KEY
from chassis.errors import Reason
from chassis.grpc import options, target
from chassis.grpc.status import from_rpc_error
from chassis.secret import Secret
from cli.stack.installation import Installation
from cli.target import NoTargetError
from cli.terminal import plain
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from identity.credentials import Credentials
from identity.reach import stays_here
from identity.table import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class TransferError(Exception):
    """What an operator asked for and did not come about; the message says why."""


DEADLINE: Final = 24 * 3600.0
"""Seconds that a call may take. A service that has died ends it within half a minute."""


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """Where the service listens, and the secret by which it knows its own."""

    address: str
    token: Secret
    service: str = "session"
    tls: Credentials | None = None

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every call."""
        authorization = ("authorization", f"Bearer {self.token.open()}")
        return authorization, (WORKSPACE_KEY, DEFAULT_WORKSPACE)

    @contextmanager
    def opened(self) -> Iterator[SessionServiceStub]:
        """The session service, for the length of the block. Raises as `channel`."""
        with self.channel() as channel:
            yield SessionServiceStub(channel)

    @contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        """A channel, for the length of the block. Raises `TransferError` for a failed call.

        Its calls block: of an upload that is refused while it still goes on, gRPC's other interface
        forgets why.
        """
        try:
            where, chosen = target.resolve(self.address)
        except ValueError as error:
            raise TransferError(str(error)) from None
        with self._open(where, [*options.CHANNEL, *chosen]) as channel:
            try:
                yield channel
            except grpc.RpcError as error:
                raise self._told(error) from None

    def _open(self, where: str, arguments: list[tuple[str, Any]]) -> grpc.Channel:
        if self.tls is None:
            return grpc.insecure_channel(where, options=arguments)
        credentials, named = self.tls.channel(self.service)
        return grpc.secure_channel(where, credentials, options=[*named, *arguments])

    def _told(self, error: grpc.RpcError) -> TransferError:
        cause = from_rpc_error(error)
        if cause.reason is Reason.IDENTITY_REFUSED:
            text = f"the {self._name} at {self.address} does not take this secret: give "
            return TransferError(f"{text}--token-file, or the right --data")
        if error.code() is grpc.StatusCode.UNAVAILABLE and not error.trailing_metadata():
            return TransferError(
                f"the {self._name} does not answer at {self.address}, or does not take this "
                f"command for the operator's: --tls-dir names its certificate"
            )
        return TransferError(plain(cause.message))

    @property
    def _name(self) -> str:
        return {"session": "session service"}.get(self.service, self.service.replace("_", " "))


def resolve(
    address: str | None,
    token_file: Path | None,
    data: Path,
    service: str = "session",
    *,
    tls_dir: Path | None = None,
) -> ServiceTarget:
    """The service that is named, else that of the stack which runs over the directory `data`.

    Raises `NoTargetError` when there is none, or no secret, or it would be sent in clear, and
    `CannotStartError` for a certificate that would be refused.
    """
    installation = Installation(data)
    if not address:
        written = installation.address_file(service)
        if not written.exists():
            msg = (
                f"no stack runs over {data}: start it with `drover up`, name another directory "
                f"with --data, or give --{service.replace('_', '-')}-address"
            )
            raise NoTargetError(msg)
        address = written.read_text().strip()
    file = token_file or installation.token_file
    if not file.exists():
        msg = f"no secret at {file}: name the installation's with --token-file or --data"
        raise NoTargetError(msg)
    made = installation.tls_dir(Caller.OPERATOR)
    directory = tls_dir or (made if made.exists() else None)
    if directory is None and not stays_here(address):
        msg = f"{address} is not on this machine: name the operator's certificate with --tls-dir"
        raise NoTargetError(msg)
    tls = Credentials.read(directory, Caller.OPERATOR) if directory is not None else None
    return ServiceTarget(address, Secret(file.read_text().strip()), service, tls)
