"""What has been brought into a volume's directory: a small file beside it.

It is out of the reach of what runs in the sandbox, and goes wherever the volume goes. Nothing of it
is synced, nor is what it tells of: it counts for no later start of the machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from services.hands import boot
from services.hands.bringing import beneath

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST: Final = 16 * 1024 * 1024


class Ledger:
    """The file for one part of a volume. Blocking, and brief; all raise `OSError`."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._name = f".{part}.json"

    def look(self, root: int) -> dict[str, str]:
        """What is there, by path: what each was made of.

        Without a file, or with one from before the machine was started, nothing is known of what is
        in the directory, which is emptied. So is, before anything is brought, what has no key: it
        was on its way when a process died.
        """
        beneath.drop_unfinished(root, self._part)
        found = self._read(root)
        with beneath.opened(self._part, at=root) as part:
            if found is None:
                beneath.clear(part)
                return {}
            for path in [path for path, key in found.items() if not key]:
                beneath.take_away(part, path)
                del found[path]
        return found

    def write(self, root: int, there: Mapping[str, str]) -> None:
        """Notes what is there, at once or not at all; an empty key is for what may be there."""
        told = {"boot": boot.boot_id(), "there": dict(there)}
        beneath.replace(root, self._name, self._part, json.dumps(told).encode())

    def _read(self, root: int) -> dict[str, str] | None:
        try:
            told = json.loads(beneath.beginning(root, self._name, _MOST))
            if told["boot"] != boot.boot_id():
                return None
            return {str(path): str(key) for path, key in told["there"].items()}
        except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
            return None
