"""Keys that never leave OpenBao or HashiCorp Vault: its transit engine wraps for us."""

from __future__ import annotations

import asyncio
import base64
import binascii
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import hvac
import requests
from hvac.exceptions import Forbidden, InvalidPath, InvalidRequest, VaultError

from chassis.errors import CannotStartError, DroverError, Reason
from chassis.secret import Secret
from services.vault_proxy.crypto.provider import unavailable, unfit
from services.vault_proxy.domain.sealed import WrappedKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME: Final = "transit"
_SECONDS: Final = 5.0
_VERSIONED: Final = "vault:v"
_AT_ONCE: Final = 8


class TransitKeys:
    """One named key of a transit engine, of a kind with authenticated data: `aes256-gcm96`.

    The token is read again from its file when it is refused: an agent may have renewed it.
    """

    name = NAME

    def __init__(
        self,
        address: str,
        key: str,
        *,
        token: Secret | None = None,
        token_file: Path | None = None,
        mount: str = "transit",
        namespace: str = "",
        ca_file: Path | None = None,
        seconds: float = _SECONDS,
    ) -> None:
        """Raises `CannotStartError` where there is no token."""
        if token is None and token_file is None:
            msg = (
                "the transit engine needs a token: set DROVER_VAULT_TRANSIT_TOKEN_FILE or "
                "DROVER_VAULT_TRANSIT_TOKEN"
            )
            raise CannotStartError(msg)
        session = requests.Session()
        session.trust_env = False  # no proxy of the environment sees data keys
        session.verify = str(ca_file) if ca_file else True
        self._client = hvac.Client(
            url=address,
            timeout=seconds,
            allow_redirects=False,
            session=session,
            namespace=namespace or None,
        )
        self._key, self._mount, self._seconds = key, mount, seconds
        # Its own: while the engine is slow nobody else is to wait for a thread.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="transit")
        self._token, self._token_file = token, token_file
        self._client.token = self._read_token()

    async def current(self) -> str:
        """The newest version of the key."""
        found = await self._ask(lambda engine: engine.read_key(self._key, mount_point=self._mount))
        return self._named(_field(found, "latest_version"))

    async def wrap(self, key: bytes, context: bytes) -> WrappedKey:
        """Has the engine encrypt, with the newest version."""
        found = await self._ask(
            lambda engine: engine.encrypt_data(
                self._key,
                plaintext=_base64(key),
                associated_data=_base64(context),
                mount_point=self._mount,
            )
        )
        text = str(_field(found, "ciphertext"))
        version, _, _ = text.removeprefix(_VERSIONED).partition(":")
        return WrappedKey(self._named(version), text.encode())

    async def unwrap(self, wrapped: WrappedKey, context: bytes) -> bytes:
        """Has the engine decrypt; which version, the wrapped key says."""
        text = wrapped.blob.decode("ascii", "replace")
        version, _, _ = text.removeprefix(_VERSIONED).partition(":")
        _, key, named = f"{wrapped.key}::".split(":")[:3]
        if version != named or not key:
            raise unfit(wrapped.key)
        try:
            found = await self._ask(
                lambda engine: engine.decrypt_data(
                    key,  # another one than now, if the setting was changed
                    ciphertext=text,
                    associated_data=_base64(context),
                    mount_point=self._mount,
                )
            )
            return base64.b64decode(str(_field(found, "plaintext")), validate=True)
        except (_RefusedError, binascii.Error):
            raise unfit(wrapped.key) from None

    async def renew(self) -> str:
        """Has the engine make a new version of the key; its policy must allow that."""
        await self._ask(lambda engine: engine.rotate_key(self._key, mount_point=self._mount))
        return await self.current()

    def _named(self, version: object) -> str:
        return f"{NAME}:{self._key}:{version}"

    def _read_token(self) -> str:
        if self._token_file is None:
            return self._token.open() if self._token else ""
        try:
            return self._token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            msg = f"{self._token_file} cannot be read ({error.strerror}): it is to hold the token"
            raise CannotStartError(msg) from error

    async def _ask(self, call: Callable[[Any], Any]) -> Any:  # noqa: ANN401  # hvac has no types
        """One request, within seconds. Raises UNAVAILABLE, and `_RefusedError` for a bad one.

        What the engine says itself is not passed on: it may quote the request.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(2 * self._seconds):
                return await loop.run_in_executor(self._threads, self._answered, call)
        except InvalidRequest:
            raise _RefusedError from None
        except Forbidden:
            raise unavailable(NAME, "does not take the token, or its policy") from None
        except InvalidPath:
            where = f"has no key {self._key!r} under {self._mount!r}"
            raise unavailable(NAME, where) from None
        except (VaultError, requests.RequestException, TimeoutError, CannotStartError) as error:
            raise unavailable(NAME, f"does not answer ({type(error).__name__})") from None

    def _answered(self, call: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        engine = self._client.secrets.transit
        try:
            return call(engine)
        except Forbidden:
            self._client.token = self._read_token()
            return call(engine)


class _RefusedError(DroverError):
    """The engine took the request for a bad one."""

    def __init__(self) -> None:
        super().__init__(
            Reason.INTERNAL,
            f"the key provider {NAME!r} refuses what it is asked: is its key of the type "
            "aes256-gcm96?",
        )


def _field(answer: object, name: str) -> object:
    try:
        return answer["data"][name]  # type: ignore[index]
    except (KeyError, TypeError):
        raise unavailable(NAME, "answers what is no answer") from None


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
