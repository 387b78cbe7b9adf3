"""What becomes of a file when its store has something else."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """What to do with a memory that comes from the store."""

    SAME = "same"
    """The file has it already."""
    OURS = "ours"
    """It is what was known, so that the file is a change of it."""
    BRING = "bring"
    """The file is what was known before, or is not there."""
    RESTORE = "restore"
    """The file was deleted here, and the memory changed there: it is back."""
    CLASH = "clash"
    """Both were changed: the store's stands, and the file's is kept beside."""


def judge(*, base: str | None, local: str | None, remote: str, sent: str | None) -> Verdict:
    """By the digests of what the file had when both were the same, of what it has, and of what the
    store has; None where there is nothing. `sent` may be what the store has got from here.
    """
    if local == remote:
        return Verdict.SAME
    if remote in {base, sent}:
        return Verdict.OURS
    if local is None:
        return Verdict.BRING if base is None else Verdict.RESTORE
    return Verdict.BRING if local == base else Verdict.CLASH
