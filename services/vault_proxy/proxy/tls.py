"""Certificates in the names of the hosts that sandboxes ask for, signed by their sessions' own
authorities (ARCHITECTURE §7)."""

from __future__ import annotations

import os
import ssl
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Callable

    from catalogue.hosts import Host
    from services.vault_proxy.domain.session import SessionAuthority

_KEPT: Final = 1024
"""Certificates that are kept, with their contexts: 18 KiB each."""
_KEPT_BY_SESSION: Final = 128
"""Of one session: one that asks for names without end replaces its own, and nobody else's."""
_LIFE: Final = timedelta(days=2)
_RENEWED: Final = timedelta(days=1)
_BACKDATED: Final = timedelta(hours=1)  # for clocks in sandboxes that are slow
_MAX_COMMON_NAME: Final = 64
PROTOCOLS: Final = ("http/1.1",)


@dataclass(frozen=True, slots=True)
class _Leaf:
    context: ssl.SSLContext
    until: datetime


class _Key:
    """The one key of this process that all certificates are made for: it never leaves it."""

    def __init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self.public = key.public_key()
        self.pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


class Leaves:
    """Certificates by session and host: each is made once, and kept while it is used.

    Where there are too many, those go that were not used for longest: of the session that has its
    share, or else of the session that has used none for longest.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        kept: int = _KEPT,
        kept_by_session: int = _KEPT_BY_SESSION,
    ) -> None:
        self._now = now
        self._kept = kept
        self._kept_by_session = kept_by_session
        self._key = _Key()
        self._sessions: OrderedDict[bytes, OrderedDict[str, _Leaf]] = OrderedDict()
        self._held = 0
        self.minted = 0
        """How many were made."""

    def context(self, authority: SessionAuthority, host: Host) -> ssl.SSLContext:
        """What a server of that name says in the session."""
        now = self._now()
        leaves = self._sessions.setdefault(authority.certificate, OrderedDict())
        self._sessions.move_to_end(authority.certificate)
        leaf = leaves.get(host.text)
        if leaf is None or leaf.until <= now:
            self._held += leaf is None
            leaf = _Leaf(_context(self._key, authority, host, now), now + _RENEWED)
            leaves[host.text] = leaf
            self.minted += 1
        leaves.move_to_end(host.text)
        if len(leaves) > self._kept_by_session:
            self._drop(authority.certificate)
        elif self._held > self._kept:
            self._drop(next(iter(self._sessions)))
        return leaf.context

    def _drop(self, session: bytes) -> None:
        """Forgets the session's that was not used for longest."""
        leaves = self._sessions[session]
        leaves.popitem(last=False)
        self._held -= 1
        if not leaves:
            del self._sessions[session]


def _context(key: _Key, authority: SessionAuthority, host: Host, now: datetime) -> ssl.SSLContext:
    certificate = _sign(authority, host, key.public, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(PROTOCOLS)
    context.num_tickets = 1
    chain = key.pem + certificate.public_bytes(serialization.Encoding.PEM)
    # The library reads keys from files alone: this one is never on a disk.
    descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(chain)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context


def _sign(
    authority: SessionAuthority, host: Host, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.Certificate:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)  # noqa: S101  # authorities are made here
    name: x509.GeneralName = x509.DNSName(host.text)
    if host.address is not None:
        name = x509.IPAddress(host.address)
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, host.text[:_MAX_COMMON_NAME])]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(now - _BACKDATED, issuer.not_valid_before_utc))
        .not_valid_after(min(now + _LIFE, issuer.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=False,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
