"""Checkpoints in memory, beside the sessions in memory."""

from __future__ import annotations

from services.session.domain.checkpoints import check


class MemoryCheckpointStore:
    """A `CheckpointStore` over the sessions of a `MemoryStore`."""

    def __init__(self, store):
        self._store = store
        self._kept = {}

    async def load(self, ref, formats):
        found = self._kept.get(ref) if self._state(ref) is not None else None
        return found if found is not None and found.format in formats else None

    async def save(self, ref, generation, checkpoint):
        check(ref, self._state(ref), generation, checkpoint)
        self._kept[ref] = checkpoint

    async def discard(self, ref):
        self._kept.pop(ref, None)

    def _state(self, ref):
        return self._store.run(lambda tx: tx.state(ref), keep=False)
