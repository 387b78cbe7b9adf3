"""What this tree folds the golden logs into: `python -m tests.replay.folds` records it.

Checkpoints of a state are taken up by brains of the same version of it, so whoever folds the same
log into another state has to give that another name: `harness.standard.FOLD`. `folds.json` tells
whether that was done.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from google.protobuf.message import Message

from services.brain.domain.checkpoint import Checkpoints
from services.brain.harness.registry import HarnessRegistry
from services.brain.harness.standard import StandardHarness
from tests.replay import golden
from tests.replay.golden import GoldenLog

FILE: Final = golden.FOLDER / "folds.json"


class Fold:
    """The version of the state, and a digest of the states that each golden log goes through."""

    def __init__(self, version: str, digests: dict[str, str]) -> None:
        self.version = version
        self.digests = digests

    @classmethod
    def recorded(cls) -> Fold:
        """What was recorded last."""
        return cls(**json.loads(FILE.read_text(encoding="utf-8")))

    @classmethod
    def now(cls) -> Fold:
        """What this tree makes of the logs."""
        logs = {name: GoldenLog.read(path) for name, path in golden.recorded().items()}
        version = Checkpoints().version(StandardHarness().fold)
        return cls(version, {name: _digest(log) for name, log in logs.items()})

    def differs(self, before: Fold) -> list[str]:
        """The logs that were folded into another state before."""
        return [name for name in self.digests if before.digests.get(name, "") != self.digests[name]]

    def hides(self, before: Fold) -> bool:
        """Whether checkpoints would be taken up that were folded otherwise."""
        folded = [name for name in self.differs(before) if name in before.digests]
        return bool(folded) and self.version == before.version


def _digest(log: GoldenLog) -> str:
    harness = HarnessRegistry(StandardHarness()).choose(log.session.agent)
    state = harness.begin(log.session)
    digest = hashlib.sha256()
    for event in log.events:
        harness.project(state, event, 0.0)
        state.seq = event.seq
        digest.update(repr(_plain(state)).encode())
    return digest.hexdigest()[:16]


def _plain(value: Any) -> Any:  # noqa: PLR0911  # one kind of value after the other
    """A value as plain ones. A new field does not show for as long as it has its default."""
    match value:
        case Enum():
            return value.name
        case Message():
            return hashlib.sha256(value.SerializeToString(deterministic=True)).hexdigest()
        case bytes() | bytearray():
            return hashlib.sha256(value).hexdigest()
        case list() | tuple() | deque():
            return [_plain(one) for one in value]
        case dict():
            return [[_plain(key), _plain(one)] for key, one in value.items()]
    if is_dataclass(value):
        kept = [one for one in fields(value) if not one.metadata.get("derived")]
        plain = {one.name: _plain(getattr(value, one.name)) for one in kept}
        return {name: one for name, one in plain.items() if one not in (None, 0, "", [], {}, False)}
    return _plain(value.dump()) if hasattr(value, "dump") else value


def main() -> None:
    """Records the fold of this tree. Refuses one that goes by the name of another."""
    now = Fold.now()
    if FILE.exists() and now.hides(Fold.recorded()):
        raise SystemExit("raise harness.standard.FOLD first: the same log gives another state")
    FILE.write_text(json.dumps(vars(now), indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
