"""The certificate of a process, as it lies in a directory: `ca.crt`, `tls.crt` and `tls.key`.

These are the names that cert-manager gives them. `ca.crt` may hold several authorities: while one
takes the place of another, all processes trust both.
"""

from __future__ import annotations

import os
import ssl
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from chassis.errors import CannotStartError
from identity.names import caller_of, name_of
from identity.table import Caller, may_call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chassis.grpc.interceptor import Context, Refusal

AUTHORITIES, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
"""The files of a process's directory."""

_SAN, _DNS = "x509_subject_alternative_name", "peer_dns"
"""As gRPC calls all the names of a certificate, of whatever kind, and those that are DNS names."""
_DEPTH: Final = 4
"""Certificates from a process's own to its authority's, at most."""
_MAKE: Final = "make certificates with `drover certs create`"
_RENEW: Final = "make another with `drover certs renew`"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a process is, and whom it believes."""

    caller: Caller
    expires: datetime
    authorities: bytes
    chain: bytes
    key: bytes = field(repr=False)
    directory: Path

    @classmethod
    def read(cls, directory: Path, caller: str, now: datetime | None = None) -> Self:
        """The credentials of `caller`. Raises `CannotStartError` for what its peers would refuse.

        So it does for a key that others than this process could read.
        """
        whose, now = Caller(caller), now or datetime.now(UTC)
        authorities, chain = _text(directory, AUTHORITIES), _text(directory, CERTIFICATE)
        _private(directory / KEY)
        key = _text(directory, KEY)
        certificates = _certificates(directory / CERTIFICATE, chain)
        own, place = certificates[0], directory / CERTIFICATE
        _matching(own, key, directory)
        _named(own, whose, place)
        _valid(own, place, now)
        trusted = _certificates(directory / AUTHORITIES, authorities)
        if not _leads(own, certificates[1:], trusted, now):
            msg = (
                f"{place} is not signed by an authority in {directory / AUTHORITIES} that is valid "
                f"now: take all three files from one `drover certs create`"
            )
            raise CannotStartError(msg)
        return cls(whose, own.not_valid_after_utc, authorities, chain, key, directory)

    def server(self) -> tuple[grpc.ServerCredentials, Refusal]:
        """What a server shows, and whom it refuses what.

        Without a certificate of an authority's there is no connection.
        """
        credentials = grpc.ssl_server_credentials(
            [(self.key, self.chain)], root_certificates=self.authorities, require_client_auth=True
        )
        return credentials, self.refusal

    def channel(self, callee: str) -> tuple[grpc.ChannelCredentials, Sequence[tuple[str, str]]]:
        """What a channel shows, and the options by which its server must be `callee`, anywhere."""
        credentials = grpc.ssl_channel_credentials(self.authorities, self.key, self.chain)
        names = "grpc.ssl_target_name_override", "grpc.default_authority"
        return credentials, [(option, name_of(callee)) for option in names]

    def refusal(self, method: str, context: Context) -> str:
        """Why a call's peer may not make it; empty if it may.

        gRPC has verified the certificate that the peer's names are of.
        """
        shown = context.auth_context()
        names = [name.decode("utf-8", "replace") for name in shown.get(_DNS, ())]
        has_one = len(names) == len([*shown.get(_SAN, ())]) == 1
        caller = caller_of(names[0]) if has_one else None
        if caller is not None and may_call(caller, method):
            return ""
        return f"{caller or 'a stranger'} may not call {method.removeprefix('/')}"

    def server_context(self) -> ssl.SSLContext:
        """For a server that does not speak gRPC: it demands a certificate of an authority's."""
        return self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def client_context(self) -> ssl.SSLContext:
        """For a client that does not speak gRPC: it verifies the name that it asks for."""
        return self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.authorities.decode("ascii"))
        context.load_cert_chain(self.directory / CERTIFICATE, self.directory / KEY)
        return context


def _text(directory: Path, name: str) -> bytes:
    try:
        return (directory / name).read_bytes()
    except OSError as error:
        msg = (
            f"{directory / name} cannot be read ({error.strerror}): DROVER_TLS_DIR names a "
            f"directory with {AUTHORITIES}, {CERTIFICATE} and {KEY}; {_MAKE}"
        )
        raise CannotStartError(msg) from error


def _private(key: Path) -> None:
    """As PostgreSQL has it: a key is its owner's alone, or root's and its group may read it."""
    try:
        found = key.stat()
    except OSError:
        return  # said when it is read
    others = stat.S_IRWXO | (stat.S_IRWXG if found.st_uid else stat.S_IWGRP | stat.S_IXGRP)
    if found.st_mode & others:
        msg = (
            f"{key} may be used by others than its owner (mode {stat.S_IMODE(found.st_mode):04o}): "
            f"chmod 600 {key}, and make another if somebody could have read it"
        )
        raise CannotStartError(msg)
    if found.st_uid not in {0, os.geteuid()} and os.geteuid():
        msg = f"{key} belongs to another user: it is to be this process's own"
        raise CannotStartError(msg)


def _certificates(place: Path, text: bytes) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError as error:
        msg = f"{place} holds no certificate in PEM: {_MAKE}"
        raise CannotStartError(msg) from error


def _matching(own: x509.Certificate, key: bytes, directory: Path) -> None:
    try:
        made_of = serialization.load_pem_private_key(key, None).public_key()
    except (ValueError, TypeError) as error:
        msg = f"{directory / KEY} holds no key in PEM, or one with a password: {_RENEW}"
        raise CannotStartError(msg) from error
    if made_of != own.public_key():
        msg = f"{directory / KEY} is not the key of {directory / CERTIFICATE}: {_RENEW}"
        raise CannotStartError(msg)


def _named(own: x509.Certificate, caller: Caller, place: Path) -> None:
    try:
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        shown = [str(one.value) if isinstance(one, x509.DNSName) else str(one) for one in names]
        if [*names] == [x509.DNSName(name_of(caller))]:
            return
    except x509.ExtensionNotFound:
        shown = []
    msg = (
        f"{place} is the certificate of {', '.join(shown) or 'nobody'}, and this process is "
        f"{name_of(caller)}: DROVER_TLS_DIR names another one's directory"
    )
    raise CannotStartError(msg)


def _valid(own: x509.Certificate, place: Path, now: datetime) -> None:
    begins, ends = own.not_valid_before_utc, own.not_valid_after_utc
    if now > ends:
        msg = f"{place} expired at {ends:%Y-%m-%d %H:%M} UTC: {_RENEW}"
        raise CannotStartError(msg)
    if now < begins:
        msg = (
            f"{place} is valid from {begins:%Y-%m-%d %H:%M} UTC on: is this machine's clock right?"
        )
        raise CannotStartError(msg)


def _leads(
    own: x509.Certificate,
    between: Sequence[x509.Certificate],
    trusted: Sequence[x509.Certificate],
    now: datetime,
) -> bool:
    """Whether a certificate is signed by one that is trusted, or by others that lead there."""
    at = own
    for _ in range(_DEPTH):
        if any(_signed(at, by, now) for by in trusted):
            return True
        following = next((one for one in between if _signed(at, one, now)), None)
        if following is None:
            return False
        at = following
    return False


def _signed(one: x509.Certificate, by: x509.Certificate, now: datetime) -> bool:
    try:
        one.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return by.not_valid_before_utc <= now <= by.not_valid_after_utc
