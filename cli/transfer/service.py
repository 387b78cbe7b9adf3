"""The session service of an installation, as an operator reaches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from chassis.errors import Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.status import from_rpc_error
from chassis.secret import Secret
from cli.stack.installation import Installation
from cli.target import NoTargetError
from cli.terminal import plain

if TYPE_CHECKING:
    from pathlib import Path

    import grpc.aio


class TransferError(Exception):
    """An export or import that did not come about; the message says why."""


@dataclass(frozen=True, slots=True)
class SessionServiceTarget:
    """Where the service listens, and the secret by which it knows its own."""

    address: str
    token: Secret

    def channel(self) -> grpc.aio.Channel:
        """A channel to it, to be opened on the event loop that uses it."""
        return open_channel(self.address, self.token)

    def refused(self, error: grpc.RpcError) -> TransferError:
        """What to tell of a failed call."""
        cause = from_rpc_error(error)
        if cause.reason is Reason.IDENTITY_REFUSED:
            text = f"the session service at {self.address} does not take this secret: give "
            return TransferError(f"{text}--token-file, or the right --data")
        if cause.reason is Reason.UNAVAILABLE and not cause.metadata:
            text = f"the session service does not answer at {self.address}"
            return TransferError(f"{text} ({plain(cause.message)})")
        return TransferError(plain(cause.message))


def resolve(address: str | None, token_file: Path | None, data: Path) -> SessionServiceTarget:
    """The service that is named, else that of the stack which runs over the directory `data`.

    Raises `NoTargetError` when there is none, or no secret.
    """
    installation = Installation(data)
    if not address:
        written = installation.address_file("session")
        if not written.exists():
            msg = (
                f"no stack runs over {data}: start it with `drover up`, name another directory "
                "with --data, or give --session-address"
            )
            raise NoTargetError(msg)
        address = written.read_text().strip()
    file = token_file or installation.token_file
    if not file.exists():
        msg = f"no secret at {file}: name the installation's with --token-file or --data"
        raise NoTargetError(msg)
    return SessionServiceTarget(address, Secret(file.read_text().strip()))
