"""What brains have folded of the logs, kept for the next ones. Nothing here looks inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from chassis.errors import DroverError, Reason
from services.session.domain.accept import not_found
from services.session.domain.lease import lost

if TYPE_CHECKING:
    from collections.abc import Collection

    from drover.session.v1 import lease_pb2
    from services.session.domain.session import SessionRef, SessionState

MAX_BYTES: Final = 8 * 1024 * 1024

SHORT: Final = 100
"""A log of no more events is sent whole, without a look for a checkpoint."""

Format = tuple[str, str]
"""A harness, and the version of what it folds into."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A log folded up to `seq`, for brains that know `format`."""

    format: Format
    seq: int
    data: bytes


class CheckpointStore(Protocol):
    """Where the last checkpoint of every session is kept, for as long as the session is there.

    Apart from the session's own store: writes that share a commit shall not wait for megabytes.
    """

    async def load(self, ref: SessionRef, formats: Collection[Format]) -> Checkpoint | None:
        """A session's checkpoint, if it is in one of the formats."""
        ...

    async def save(self, ref: SessionRef, generation: int, checkpoint: Checkpoint) -> None:
        """Keeps a checkpoint in place of the last one. Raises what `check` raises."""
        ...

    async def discard(self, ref: SessionRef) -> None:
        """Removes a session's checkpoint, if there is one."""
        ...


def check(
    ref: SessionRef, state: SessionState | None, generation: int, checkpoint: Checkpoint
) -> None:
    """Whether a brain of `generation` may keep a checkpoint of a session.

    The log that it has folded is the session's as long as nobody was given the lease since: what
    was appended under it stays as it is. Raises NOT_FOUND, ARCHIVED, LEASE_LOST and
    INVALID_ARGUMENT.
    """
    if state is None:
        raise not_found(ref)
    if state.ended:
        raise DroverError(Reason.ARCHIVED, "the session is at its end and needs no brain")
    if state.generation != generation:
        raise lost(generation, state.generation)
    if not 0 < len(checkpoint.data) <= MAX_BYTES:
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            f"checkpoint.data: {len(checkpoint.data)} bytes, where 1 to {MAX_BYTES} are taken",
        )
    if checkpoint.seq > state.head_seq:
        raise DroverError(
            Reason.INVALID_ARGUMENT, f"checkpoint.seq: the log ends at {state.head_seq}"
        )


def wanted(request: lease_pb2.OpenLease, head_seq: int) -> frozenset[Format]:
    """The formats in which a checkpoint is of use to a brain that opens the lease on a log."""
    if request.after_seq or head_seq <= SHORT:
        return frozenset()
    return frozenset((one.harness, one.version) for one in request.checkpoint_formats)
