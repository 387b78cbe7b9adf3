"""Certificate authorities of sessions: made once, their keys kept sealed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.vault_proxy.domain.grant_ports import StoredAuthority
from services.vault_proxy.domain.session import SessionAuthority

if TYPE_CHECKING:
    from chassis.clock import Clock
    from services.vault_proxy.domain.grant_ports import AuthorityStore
    from services.vault_proxy.domain.ports import Sealer

_LIFE: Final = timedelta(days=3650)
"""Of a session's authority: longer than the session, with whose sandbox it goes."""
_BACKDATED: Final = timedelta(hours=1)  # for clocks in sandboxes that are slow
_MOST: Final = 1024
"""Authorities that are kept open."""
_PLACE: Final = "session authority"


class Authorities:
    """Gives every session an authority of its own, which signs in no other's name."""

    def __init__(self, store: AuthorityStore, sealer: Sealer, clock: Clock) -> None:
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._opened: OrderedDict[tuple[str, str], SessionAuthority] = OrderedDict()

    async def of(self, workspace_id: str, session_id: str) -> SessionAuthority:
        """The session's, made if there is none; of two that are made at once one is kept.

        Raises `DroverError`.
        """
        authority = await self.existing(workspace_id, session_id)
        if authority is None:
            made = await self._made(workspace_id, session_id)
            authority = await self._open(await self._store.keep(made))
        return authority

    async def existing(self, workspace_id: str, session_id: str) -> SessionAuthority | None:
        """The session's, if there is one. Raises `DroverError`."""
        whose = (workspace_id, session_id)
        if (authority := self._opened.get(whose)) is not None:
            self._opened.move_to_end(whose)
            return authority
        stored = await self._store.load(*whose)
        return None if stored is None else await self._open(stored)

    async def forget(self, workspace_id: str, session_id: str) -> None:
        """Removes the session's: nothing is signed for it again. Raises `DroverError`."""
        self._opened.pop((workspace_id, session_id), None)
        await self._store.forget(workspace_id, session_id)

    async def _open(self, stored: StoredAuthority) -> SessionAuthority:
        whose = (stored.workspace_id, stored.session_id)
        key = await self._sealer.open(stored.sealed_key, _place(*whose))
        opened = SessionAuthority(stored.session_id, stored.certificate, key)
        self._opened[whose] = opened
        while len(self._opened) > _MOST:
            self._opened.popitem(last=False)
        return opened

    async def _made(self, workspace_id: str, session_id: str) -> StoredAuthority:
        now = self._clock.now()
        key, certificate = await asyncio.to_thread(_make, session_id, now)
        sealed = await self._sealer.seal(key, _place(workspace_id, session_id))
        return StoredAuthority(workspace_id, session_id, certificate, sealed, now)


def _place(workspace_id: str, session_id: str) -> bytes:
    return b"\0".join(part.encode() for part in (_PLACE, workspace_id, session_id))


def _make(session_id: str, now: datetime) -> tuple[bytes, bytes]:
    """A key and its certificate (RFC 5280 §4.2.1.9: it signs hosts' certificates and no CAs')."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Drover {session_id}"[:64])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate.public_bytes(serialization.Encoding.PEM),
    )
