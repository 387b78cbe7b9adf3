"""The certificates of an installation, in one directory of its operator.

`ca/` holds the authority, whose key no process is given; `session/`, `brain/` and so on hold what a
process is given, each its own. While an authority takes the place of another `ca/` holds both: the
next one until certificates are signed by it, then the one before until nobody shows what it signed.
"""

from __future__ import annotations

import enum
import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509

from identity.authority import AUTHORITY_DAYS, DAYS, Authority, place
from identity.credentials import AUTHORITIES, CERTIFICATE, KEY
from identity.files import write_private
from identity.table import Caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime, timedelta
    from pathlib import Path

_AUTHORITY: Final = "ca"
_CURRENT, _NEXT, _PREVIOUS = "ca", "next", "previous"


class FolderError(Exception):
    """What was asked of the directory cannot be done; the message says what can."""


class Rotation(enum.Enum):
    """How far the authority is replaced."""

    NONE = "none"
    TRUSTED = "trusted"
    """All processes are given both to trust; the old one signs."""
    SIGNED = "signed"
    """The new one has signed everything; both are trusted."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A certificate in the directory."""

    name: str
    begins: datetime
    expires: datetime
    current: bool
    """Whether the authority that signs now has signed it."""


class Folder:
    """The directory `root`. What it does it does under a lock, and may be done again after a crash.

    Raises `FolderError`, and `OSError` where it cannot read or write.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ca = root / _AUTHORITY

    # ---- what is there ----

    @property
    def rotation(self) -> Rotation:
        """How far a rotation is."""
        if (self._ca / f"{_PREVIOUS}.crt").exists():
            return Rotation.SIGNED
        return Rotation.TRUSTED if (self._ca / f"{_NEXT}.crt").exists() else Rotation.NONE

    def show(self) -> list[Shown]:
        """The authority that signs, and the certificates that there are."""
        authority = self._certificate(self._ca / f"{_CURRENT}.crt")
        certificates = {
            caller: self._certificate(file)
            for caller in Caller
            if (file := self.root / caller / CERTIFICATE).exists()
        }
        own = _shown("authority", authority, authority)
        return [own, *(_shown(name, one, authority) for name, one in certificates.items())]

    # ---- what is done ----

    def create(self, now: datetime, days: int = DAYS, *, if_missing: bool = False) -> list[Caller]:
        """Makes an authority and a certificate for every process; tells for whom.

        With `if_missing` only for whom there is none yet; else there must be none at all.
        """
        there = (self._ca / f"{_CURRENT}.crt").exists()
        if there and not if_missing:
            msg = (
                f"{self.root} has certificates: `drover certs renew` makes them anew, "
                "`drover certs rotate` replaces their authority, and --if-missing adds what lacks"
            )
            raise FolderError(msg)
        with self._alone():
            if not (self._ca / f"{_CURRENT}.crt").exists():
                self._keep(_CURRENT, Authority.make(now, AUTHORITY_DAYS))
            lacking = [caller for caller in Caller if not self._is_whole(caller)]
            self._issue(lacking, now, days)
        return lacking

    def renew(self, now: datetime, within: timedelta | None, days: int = DAYS) -> list[Caller]:
        """New certificates for those whose own ends `within` so long; `None` is for all."""
        self._certificate(self._ca / f"{_CURRENT}.crt")  # there must be one that signs
        with self._alone():
            until = None if within is None else now + within
            chosen = [caller for caller in Caller if self._ends_by(caller, until)]
            self._issue(chosen, now, days)
        return chosen

    def trust_next(self, now: datetime) -> None:
        """First step of a rotation: all are given a second authority to trust."""
        self._certificate(self._ca / f"{_CURRENT}.crt")  # there must be one to be replaced
        with self._alone():
            if self.rotation is Rotation.SIGNED:
                raise FolderError("a rotation is under way: go on with --step retire")
            if self.rotation is Rotation.NONE:
                self._keep(_NEXT, Authority.make(now, AUTHORITY_DAYS))
            self._trust(self._trusted())

    def sign_by_next(self, now: datetime, days: int = DAYS) -> None:
        """Second step: the new authority signs for all. The old one's key is no more."""
        if self.rotation is Rotation.NONE:
            raise FolderError("no rotation is under way: begin with --step trust")
        with self._alone():
            if (self._ca / f"{_NEXT}.crt").exists():
                following = self._authority(_NEXT)
                if not (self._ca / f"{_PREVIOUS}.crt").exists():
                    before = (self._ca / f"{_CURRENT}.crt").read_bytes()
                    write_private(self._ca / f"{_PREVIOUS}.crt", before)
                self._keep(_CURRENT, following)
                # The certificate first: as long as it is there this is done again, with the key.
                for name in (f"{_NEXT}.crt", f"{_NEXT}.key"):
                    (self._ca / name).unlink()
            else:  # one that broke off has left no more than this
                (self._ca / f"{_NEXT}.key").unlink(missing_ok=True)
            self._issue(Caller, now, days)

    def retire_previous(self) -> None:
        """Third step: nobody trusts the old authority any more."""
        if self.rotation is not Rotation.SIGNED:
            raise FolderError("there is no authority to retire: begin with --step trust")
        if old := [one.name for one in self.show() if not one.current]:
            msg = f"{', '.join(old)}: signed by the old authority still; repeat --step sign"
            raise FolderError(msg)
        with self._alone():
            self._trust((self._ca / f"{_CURRENT}.crt").read_bytes())
            (self._ca / f"{_PREVIOUS}.crt").unlink()

    # ---- how ----

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._ca.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._ca / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _issue(self, callers: Iterable[Caller], now: datetime, days: int) -> None:
        authority, trusted = self._authority(_CURRENT), self._trusted()
        if authority.certificate.not_valid_after_utc <= now:
            msg = f"the authority in {self._ca} has expired: replace it, with `drover certs rotate`"
            raise FolderError(msg)
        for caller in callers:
            place(self.root / caller, trusted, authority.issue(caller, now, days))

    def _trust(self, authorities: bytes) -> None:
        for caller in Caller:
            if (directory := self.root / caller).exists():
                write_private(directory / AUTHORITIES, authorities)

    def _trusted(self) -> bytes:
        files = [self._ca / f"{name}.crt" for name in (_CURRENT, _NEXT, _PREVIOUS)]
        return b"".join(file.read_bytes() for file in files if file.exists())

    def _keep(self, name: str, authority: Authority) -> None:
        write_private(self._ca / f"{name}.key", authority.key)
        write_private(self._ca / f"{name}.crt", authority.pem)

    def _authority(self, name: str) -> Authority:
        certificate, key = self._ca / f"{name}.crt", self._ca / f"{name}.key"
        try:
            return Authority.load(certificate.read_bytes(), key.read_bytes())
        except FileNotFoundError as error:
            msg = f"there is no {error.filename}: make certificates with `drover certs create`"
            if certificate.exists():
                msg = f"there is no {key}, without which nothing is signed: put it back"
            raise FolderError(msg) from error
        except (ValueError, TypeError) as error:
            raise FolderError(f"{certificate} and {key} do not go together: {error}") from error

    def _certificate(self, file: Path) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificate(file.read_bytes())
        except FileNotFoundError as error:
            msg = f"there is no {file}: make certificates with `drover certs create`"
            raise FolderError(msg) from error
        except ValueError as error:
            raise FolderError(f"{file} holds no certificate in PEM") from error

    def _ends_by(self, caller: Caller, until: datetime | None) -> bool:
        if until is None or not self._is_whole(caller):
            return True
        file = self.root / caller / CERTIFICATE
        return self._certificate(file).not_valid_after_utc <= until

    def _is_whole(self, caller: Caller) -> bool:
        return all((self.root / caller / name).exists() for name in (AUTHORITIES, KEY, CERTIFICATE))


def _shown(name: str, one: x509.Certificate, authority: x509.Certificate) -> Shown:
    return Shown(
        name, one.not_valid_before_utc, one.not_valid_after_utc, one.issuer == authority.subject
    )
