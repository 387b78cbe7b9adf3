"""Giving a session copies of files: made before it has them, and deleted if it never does."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from services.session.domain.resources.files import Copy
    from services.session.domain.session import SessionRef
    from services.session.rpc.parts import Parts

_REFUSALS: Final = frozenset({Reason.NOT_FOUND, Reason.INVALID_ARGUMENT, Reason.CONFLICT})


@asynccontextmanager
async def giving(
    parts: Parts,
    ref: SessionRef,
    copies: Sequence[Copy],
    *,
    file_id: str = "",
    some: bool = False,
) -> AsyncIterator[None]:
    """Within it there are copies for a session, which `Transaction.keep_files` gives it.

    They are for one that has yet to be stored, or for one that exists: the one copy `file_id`. With
    `some` those are left out whose files are gone, otherwise it raises as `Files.copy`. What was
    not given when the body ends is deleted at once; in its time, what a process leaves that dies,
    and what may yet come to be, since nobody has answered.
    """
    if not copies:
        yield
        return
    await parts.store.write(lambda tx: tx.foresee_files(ref, file_id))
    known = not file_id  # for a session whose files were deleted nothing is taken that comes late
    try:
        try:
            await (parts.files.copy_rest if some else parts.files.copy)(ref.session_id, copies)
        except DroverError as error:
            known = known or error.reason in _REFUSALS
            raise
        known = True
        yield
    finally:
        with suppress(DroverError):  # then it is deleted in its time
            if known and await parts.store.write(lambda tx: tx.hasten_files(ref, file_id)):
                parts.files_due()
