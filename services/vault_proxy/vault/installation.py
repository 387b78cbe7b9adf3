"""The installation's key: drawn when there is none, unwrapped when the process starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.vault_proxy.crypto.aead import draw_key
from services.vault_proxy.crypto.envelope import Place
from services.vault_proxy.crypto.sealer import InstallationKey
from services.vault_proxy.domain.sealed import INSTALLATION_ID, INSTALLATION_KEY

if TYPE_CHECKING:
    from services.vault_proxy.crypto.keyring import Keyring
    from services.vault_proxy.domain.vault_ports import InstallationKeys

_CONTEXT = Place(INSTALLATION_KEY, "", "", INSTALLATION_ID).key_context


async def installation_key(keys: InstallationKeys, keyring: Keyring) -> InstallationKey:
    """The key, the same in every replica. Raises UNAVAILABLE, and INTERNAL for one that is lost."""
    kept = await keys.load()
    if kept is None:
        kept = await keys.keep(await keyring.wrap(draw_key(), _CONTEXT))
    return InstallationKey(await keyring.unwrap(kept, _CONTEXT))
