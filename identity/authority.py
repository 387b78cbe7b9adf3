"""A private authority, and the certificates that it signs for the processes of an installation."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from chassis.ids import new_id
from identity.credentials import AUTHORITIES, CERTIFICATE, KEY
from identity.files import write_private
from identity.names import name_of

if TYPE_CHECKING:
    from pathlib import Path

AUTHORITY_DAYS: Final = 3650
DAYS: Final = 365
_SKEW: Final = timedelta(minutes=5)
"""Of the clocks of machines that a certificate is shown to right after it was made."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates. Whoever has its key can be any process."""

    certificate: x509.Certificate
    _key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def make(cls, now: datetime, days: int = AUTHORITY_DAYS) -> Self:
        """A new one, under a name that no other has."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, f"Drover authority {new_id('ca')}")]
        )
        unsigned = (
            _builder(name, name, key.public_key(), now, now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return cls(unsigned.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """One that was kept. Raises `ValueError` for what is none, or for another's key."""
        loaded = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            msg = "the key is of another kind than Drover makes"
            raise ValueError(msg)  # noqa: TRY004  # of what was read, as the others are
        if private.public_key() != loaded.public_key():
            msg = "the key is not that of the certificate"
            raise ValueError(msg)
        return cls(loaded, private)

    @property
    def pem(self) -> bytes:
        """Its certificate, in PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """Its key, in PEM, to be kept where only the operator reads."""
        return _pem(self._key)

    def issue(self, caller: str, now: datetime, days: int = DAYS) -> Issued:
        """A certificate for a caller, both to call and to be called.

        It is valid so many days, though no longer than the authority. Raises `ValueError` for a
        caller that there is not.
        """
        key, name = ec.generate_private_key(ec.SECP256R1()), name_of(caller)
        ends = min(now + timedelta(days=days), self.certificate.not_valid_after_utc)
        issuer = self._key.public_key()
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, caller)])
        unsigned = (
            _builder(subject, self.certificate.subject, key.public_key(), now, ends)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False
            )
        )
        signed = unsigned.sign(self._key, hashes.SHA256())
        return Issued(signed.public_bytes(serialization.Encoding.PEM), _pem(key))


def place(directory: Path, authorities: bytes, issued: Issued, *, durable: bool = True) -> None:
    """Puts a process's three files into its directory, where only this user reads them.

    The certificate is last: where it is, so is the rest.
    """
    for made in (directory.parent, directory):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(directory / AUTHORITIES, authorities, durable=durable)
    write_private(directory / KEY, issued.key, durable=durable)
    write_private(directory / CERTIFICATE, issued.certificate, durable=durable)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
