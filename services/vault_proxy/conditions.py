"""What must hold before the process serves, each with the setting that it comes from."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from chassis.errors import CannotStartError, DroverError, Reason
from services.vault_proxy.domain.addresses import AddressRules, openings
from services.vault_proxy.outbound import trust
from services.vault_proxy.proxy.own import local_addresses, own_addresses
from services.vault_proxy.vault.installation import installation_key

if TYPE_CHECKING:
    from services.vault_proxy.crypto.keyring import Keyring
    from services.vault_proxy.crypto.sealer import InstallationKey
    from services.vault_proxy.domain.vault_ports import InstallationKeys
    from services.vault_proxy.settings import VaultProxySettings


async def opened(wrapped: InstallationKeys, keyring: Keyring) -> InstallationKey:
    """The installation's key. Raises `CannotStartError` where these keys do not open it."""
    try:
        return await installation_key(wrapped, keyring)
    except DroverError as error:
        msg = f"the installation's key cannot be opened: {error.message}"
        if error.reason is Reason.INTERNAL:
            msg += ": are these the keys of this database? If not, restore those from their backup"
        raise CannotStartError(msg) from error


def trusted(settings: VaultProxySettings) -> ssl.SSLContext:
    """What servers are verified with. Raises `CannotStartError` for a file that cannot be read."""
    try:
        return trust(settings.egress_ca_file)
    except OSError as error:
        why = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        msg = (
            f"DROVER_EGRESS_CA_FILE cannot be used: {settings.egress_ca_file}: {why or error}: "
            "name a PEM file with certificates, or unset it"
        )
        raise CannotStartError(msg) from error


def addresses(settings: VaultProxySettings, service: str) -> AddressRules:
    """What may be dialled. Raises `CannotStartError` for an own address that is none."""
    try:
        own = own_addresses(settings.listening(), settings.databases(service))
    except ValueError as error:
        msg = (
            f"an address of Drover's own cannot be used ({error}): see the settings "
            "DROVER_…_ADDRESS, DROVER_BRAIN_ADDRESSES and DROVER_EGRESS_OWN_ADDRESSES"
        )
        raise CannotStartError(msg) from error
    return AddressRules(openings(settings.egress_allow_private), own, local_addresses())
