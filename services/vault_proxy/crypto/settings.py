"""Settings of the key providers, and the keyring that they make."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from chassis.errors import CannotStartError
from chassis.settings import SecretText
from services.vault_proxy.crypto import environment_keys, file_keys
from services.vault_proxy.crypto.keyring import Keyring
from services.vault_proxy.crypto.provider import KeyProvider
from storage.settings import DatabaseSettings


class KeySettings(DatabaseSettings):
    """Where the keys are that the keys of stored secrets are wrapped with."""

    vault_key_provider: Literal["file", "environment", "transit"] = Field(
        default="file",
        description="What wraps the keys of stored secrets: a file, DROVER_VAULT_KEYS, or the "
        "transit engine of OpenBao or Vault. The others still unwrap where they are set up.",
    )
    vault_keys_file: Path = Field(
        default_factory=lambda data: data["data_dir"] / "vault_proxy" / "keys",
        description="The file with the keys, made at the first start. Keep a copy apart from the "
        "database's. Default: DATA_DIR/vault_proxy/keys.",
    )
    vault_keys: SecretText = Field(
        default=None,
        description="Keys as NUMBER:BASE64 of 32 bytes, comma separated; the last one wraps.",
    )
    vault_transit_address: str = Field(
        default="",
        description="URL of OpenBao or Vault, such as https://openbao:8200; http:// is taken for "
        "loopback alone.",
    )
    vault_transit_key: str = Field(
        default="drover", description="Name of the transit engine's key, of type aes256-gcm96."
    )
    vault_transit_mount: str = Field(
        default="transit", description="Where the transit engine is mounted."
    )
    vault_transit_namespace: str = Field(default="", description="Namespace, if there is one.")
    vault_transit_token: SecretText = Field(
        default=None, description="Token for the transit engine. Better: a file."
    )
    vault_transit_token_file: Path | None = Field(
        default=None,
        description="File with the token for the transit engine, read again when it is refused.",
    )
    vault_transit_ca_file: Path | None = Field(
        default=None, description="Certificates that the transit engine's is signed by."
    )
    vault_key_cache_seconds: float = Field(
        default=300.0,
        gt=0,
        description="Unwrapped keys are remembered for so long: credentials go on that long while "
        "the key provider does not answer.",
    )

    def keyring(self, *, make: bool) -> Keyring:
        """All providers that are set up. `make` makes the file of keys where there is none.

        Raises `CannotStartError`.
        """
        providers: dict[str, KeyProvider] = {}
        active = self.vault_key_provider
        if active == file_keys.NAME or self.vault_keys_file.exists():
            made = make and active == file_keys.NAME
            providers[file_keys.NAME] = file_keys.FileKeys.open(self.vault_keys_file, make=made)
        if self.vault_keys is not None:
            providers[environment_keys.NAME] = environment_keys.EnvironmentKeys(self.vault_keys)
        if self.vault_transit_address:
            providers["transit"] = self._transit()
        if active not in providers:
            name = "KEYS" if active == environment_keys.NAME else "TRANSIT_ADDRESS"
            msg = f"DROVER_VAULT_{name} is not set: DROVER_VAULT_KEY_PROVIDER={active} needs it"
            raise CannotStartError(msg)
        return Keyring(providers.pop(active), list(providers.values()))

    def _transit(self) -> KeyProvider:
        _refuse_in_clear(self.vault_transit_address)
        # Its client takes a while to import, and most installations have none.
        from services.vault_proxy.crypto.transit import TransitKeys  # noqa: PLC0415

        return TransitKeys(
            self.vault_transit_address,
            self.vault_transit_key,
            token=self.vault_transit_token,
            token_file=self.vault_transit_token_file,
            mount=self.vault_transit_mount,
            namespace=self.vault_transit_namespace,
            ca_file=self.vault_transit_ca_file,
        )


def _refuse_in_clear(address: str) -> None:
    """Raises `CannotStartError` for a URL by which keys would cross a network without TLS."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        parts, host = None, ""
    if parts is None or parts.scheme not in {"http", "https"} or not host:
        msg = "DROVER_VAULT_TRANSIT_ADDRESS is no URL such as https://openbao:8200"
        raise CannotStartError(msg)
    if parts.scheme == "http" and not _is_loopback(host):
        msg = (
            f"DROVER_VAULT_TRANSIT_ADDRESS is http:// to {host}: tokens and data keys would cross "
            "the network in the clear. Give an https:// URL (DROVER_VAULT_TRANSIT_CA_FILE for an "
            "authority of your own); http:// is for this machine's loopback alone"
        )
        raise CannotStartError(msg)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
