"""A session's folded state as bytes, so that the next brain folds only what came since.

Never more than a shortcut: whatever is not sure to be what folding the log would give is refused,
and the log is folded whole. A checkpoint can be read by releases of one `version`: with the same
classes of the state, and the same fold.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from services.brain.domain.calls import Answerer, Call
from services.brain.domain.codec import Codec, CodecError
from services.brain.domain.context import Context
from services.brain.domain.instructions import Instructions
from services.brain.domain.links import Links
from services.brain.domain.policy import Permission, Permissions, Remote
from services.brain.domain.servers import Server, Servers
from services.brain.domain.state import State, Status
from services.brain.domain.transcript import Result, Transcript
from services.brain.domain.usage import UsageTotals

if TYPE_CHECKING:
    from collections.abc import Sequence

CLASSES: Final[tuple[type[Any], ...]] = (
    State,
    Status,
    Call,
    Answerer,
    Context,
    Instructions,
    Links,
    Permission,
    Permissions,
    Remote,
    Result,
    Server,
    Servers,
    Transcript,
    UsageTotals,
)
"""All that a state is made of, but for plain values and messages of the contract."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""A larger one is not kept: SessionService takes no more."""

_MAGIC: Final = b"drover checkpoint\n"
_DIGEST_BYTES: Final = 16


class CheckpointError(ValueError):
    """Bytes that are not the checkpoint which was asked for."""


class Checkpoints:
    """Writes and reads the checkpoints of states made of `classes`."""

    def __init__(self, classes: Sequence[type[Any]] = CLASSES) -> None:
        self._codec = Codec(classes)
        self._schema = hashlib.sha256(self._codec.schema.encode()).hexdigest()[:16]

    def version(self, fold: str) -> str:
        """Names what a reader must agree on: the classes, and the fold by its own name."""
        return f"{self._schema}.{fold}"

    def write(self, state: State, fold: str) -> bytes:
        """The checkpoint of `state`, which is folded up to `state.seq`, in one copy of it.

        Raises `CodecError` for a state that holds what the classes do not allow for.
        """
        named = (self.version(fold), state.session_id, state.seq, state)
        pieces = self._codec.encode(named)
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for piece in pieces:
            digest.update(piece)
        return b"".join((_MAGIC, digest.digest(), *pieces))

    def read(self, data: bytes, fold: str, session_id: str, seq: int) -> State:
        """The state of that session at that position.

        Raises `CheckpointError` for what is damaged, of another version, session or position.
        """
        begin = len(_MAGIC) + _DIGEST_BYTES
        body = memoryview(data)[begin:]
        if data[:begin] != _MAGIC + hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest():
            raise CheckpointError("damaged")
        try:
            version, *place, state = self._codec.decode(body)
        except (CodecError, TypeError, ValueError) as error:
            raise CheckpointError(f"not readable: {error}") from error
        if version != self.version(fold) or not isinstance(state, State):
            raise CheckpointError(f"of another version, {version}")
        if place != [session_id, seq] or [state.session_id, state.seq] != place:
            raise CheckpointError(f"of another session or position, {place}")
        return state
