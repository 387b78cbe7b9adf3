"""What of a volume's outputs was published: a small file beside it, out of the sandbox's reach."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from services.hands.bringing import beneath

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

_PART: Final = "outputs"
_NAME: Final = f".{_PART}.json"
_MOST: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class Record:
    """States by path: of files that are published, and of what is not.

    A record that is lost costs reading all files once more: the registry keeps what is the same.
    `restored`: the volume comes from a checkpoint, and newer files than its own may be published.
    """

    published: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    restored: bool = False

    @classmethod
    def read(cls, root: Path) -> Record:
        """A volume's. Raises `OSError`."""
        with (
            suppress(FileNotFoundError, ValueError, TypeError, LookupError),
            beneath.opened(root) as volume,
        ):
            told = json.loads(beneath.beginning(volume, _NAME, _MOST))
            restored = bool(told.get("restored"))
            return cls(dict(told["published"]), dict(told["refused"]), restored)
        return cls()

    def copy(self) -> Record:
        """As it is now."""
        return Record(dict(self.published), dict(self.refused), self.restored)

    def keep(self, there: Collection[str], refused: Collection[str]) -> None:
        """Forgets what is not there any more; notes what is not published, whatever its state."""
        self.published = {path: state for path, state in self.published.items() if path in there}
        states = {path: state for path, state in self.refused.items() if path in there}
        self.refused = {**dict.fromkeys(refused, ""), **states}

    def write(self, root: Path) -> None:
        """At once or not at all. Raises `OSError`."""
        with beneath.opened(root) as volume:
            beneath.replace(volume, _NAME, _PART, json.dumps(asdict(self)).encode())


def mark_restored(root: Path) -> None:
    """Notes that a volume has been made of a checkpoint. Raises `OSError`."""
    Record(restored=True).write(root)
