"""Says whether the vault proxy can start, for who may not import a service (`drover doctor`).

`python -m services.vault_proxy.examine`, in the environment that the process would be started in.
Tries what `main` does before it serves, and changes nothing. Prints a JSON object: by what was
tried, why it cannot be, or nothing. An empty one where the settings themselves are in error, or the
database is: others tell of those.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from pydantic import ValidationError

from chassis.errors import CannotStartError
from services.vault_proxy.conditions import addresses, opened, trusted
from services.vault_proxy.crypto import file_keys
from services.vault_proxy.settings import VaultProxySettings
from services.vault_proxy.store.schema import SCHEMA
from services.vault_proxy.store.wrapped_keys import installation_row
from services.vault_proxy.undumpable import keep_memory_closed
from storage.glance import glance

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.vault_proxy.domain.sealed import WrappedKey

KEYS: Final = "keys of credentials"
OUTSIDE: Final = "way to the outside"
_SERVICE: Final = SCHEMA.service


class _Kept:
    """Implements `InstallationKeys` with what was read; what is to be kept is not."""

    def __init__(self, found: WrappedKey | None) -> None:
        self._found = found

    async def load(self) -> WrappedKey | None:
        return self._found

    async def keep(self, key: WrappedKey) -> WrappedKey:
        return key


async def examine(settings: VaultProxySettings) -> dict[str, str]:
    """By what was tried, why it cannot be. Raises `CannotStartError` for the database."""
    found = await glance(settings.database(_SERVICE).open(), SCHEMA, installation_row)
    told = {KEYS: "", OUTSIDE: ""}
    try:
        await _keys(settings, found)
    except CannotStartError as error:
        told[KEYS] = str(error)
    attempts: tuple[Callable[[], object], ...] = (
        lambda: trusted(settings),
        lambda: addresses(settings, _SERVICE),
    )
    for attempt in attempts:
        try:
            attempt()
        except CannotStartError as error:
            told[OUTSIDE] = told[OUTSIDE] or str(error)
    return told


async def _keys(settings: VaultProxySettings, found: WrappedKey | None) -> None:
    """Opens the installation's key, or sees that one could be made."""
    file = settings.vault_keys_file
    if found is not None or settings.vault_key_provider != file_keys.NAME or file.exists():
        await opened(_Kept(found), settings.keyring(make=False))
        return
    place = next(one for one in file.absolute().parents if one.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        msg = f"DROVER_VAULT_KEYS_FILE: {file} cannot be made: {place} cannot be written"
        raise CannotStartError(msg)
    with tempfile.TemporaryDirectory(prefix="drover-trial-") as directory:
        trial = settings.model_copy(update={"vault_keys_file": Path(directory) / "keys"})
        await opened(_Kept(None), trial.keyring(make=True))


def main() -> int:
    """Prints what there is to say."""
    keep_memory_closed()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        told = asyncio.run(examine(VaultProxySettings()))
    except (CannotStartError, ValidationError):
        told = {}
    json.dump(told, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
