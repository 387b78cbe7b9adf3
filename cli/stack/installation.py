"""The data directory of a stack: what lies where, who holds it, and its two secrets."""

from __future__ import annotations

import fcntl
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from chassis.secret import Secret
from identity import files
from identity.authority import AUTHORITY_DAYS, Authority, place
from identity.credentials import Credentials
from identity.peers import Peers
from identity.table import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator

_PRIVATE_DIRECTORY = 0o700
_PRIVATE_FILE = 0o600


class InUseError(Exception):
    """Another stack lives in the data directory."""


class Installation:
    """A data directory. Its `run/` says what runs now; `logs/` holds a file per process."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.run = self.root / "run"
        self.logs = self.root / "logs"

    @property
    def token_file(self) -> Path:
        """The secret by which Drover's processes know each other (ARCHITECTURE §7)."""
        return self.run / "token"

    @property
    def key_file(self) -> Path:
        """The clients' API keys, one a line, the first client's first."""
        return self.run / "api_key"

    @property
    def egress_socket(self) -> Path:
        """Where the vault proxy takes the sandboxes' connections."""
        return self.run / "egress.sock"

    def tls_dir(self, caller: str) -> Path:
        """The certificate, and what goes with it, by which the others know a process."""
        return self.run / "tls" / caller

    def pid_file(self, name: str) -> Path:
        """Holds the pid of the process `name` while it runs."""
        return self.run / f"{name}.pid"

    def address_file(self, name: str) -> Path:
        """Holds where the process `name` listens, `host:port`."""
        return self.run / f"{name}.address"

    def log_file(self, name: str) -> Path:
        """What the process `name` prints."""
        return self.logs / f"{name}.log"

    def acquire(self) -> int:
        """Makes the directories and takes the lock; returns the descriptor that holds it.

        The lock is kept until every process that has the descriptor open has ended. Raises
        `InUseError` while another stack holds it, `OSError` if the directory cannot be written.
        """
        for directory in (self.root, self.run, self.logs):
            directory.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        lock = os.open(self.run / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode().strip()
            os.close(lock)
            who = f" (pid {holder})" if holder else ""
            msg = f"{self.root} is in use by a running stack{who}"
            raise InUseError(msg) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return lock

    def clear(self) -> None:
        """Removes what a stack that runs no more has left in `run/`."""
        for path in self._ephemeral():
            path.unlink(missing_ok=True)

    def rotate_logs(self) -> None:
        """Keeps the logs of the last run as `.log.1` and lets this one start anew."""
        for log in self.logs.glob("*.log"):
            log.replace(log.with_name(f"{log.name}.1"))

    def ensure_token(self) -> Secret:
        """The installation's secret, made when there is none."""
        return self._ensure(self.token_file, secrets.token_urlsafe(32))

    def ensure_key(self, wanted: str | None) -> Secret:
        """The first client's key: `wanted` if given, else the one kept, else a new one."""
        key = wanted or self.kept_key() or f"drv_{secrets.token_urlsafe(32)}"
        if key != self.kept_key():
            write_private(self.key_file, key)
        return Secret(key)

    def kept_key(self) -> str | None:
        """The first of the clients' keys that are kept, if there is any."""
        try:
            return next(iter(self.key_file.read_text(encoding="utf-8").split()), None)
        except FileNotFoundError:
            return None

    def certify(self) -> None:
        """Makes new certificates for all, and forgets what signed them: nobody can make another.

        They are valid as long as a stack may run.
        """
        now = datetime.now(UTC)
        authority = Authority.make(now)
        for caller in Caller:
            issued = authority.issue(caller, now, AUTHORITY_DAYS)
            place(self.tls_dir(caller), authority.pem, issued, durable=False)

    def peers(self, caller: str) -> Peers:
        """What the process `caller` of a stack that runs shows the others.

        Raises `OSError` and `CannotStartError` where no stack was.
        """
        token = Secret(self.token_file.read_text(encoding="utf-8").strip())
        return Peers(token, Credentials.read(self.tls_dir(caller), caller))

    @staticmethod
    def _ensure(path: Path, fresh: str) -> Secret:
        kept = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        if not kept:
            write_private(path, fresh)
        return Secret(kept or fresh)

    def _ephemeral(self) -> Iterator[Path]:
        yield from self.run.glob("*.pid")
        yield from self.run.glob("*.address")


def write_private(path: Path, text: str) -> None:
    """Puts a line into a file that only this user can read, all at once."""
    files.write_private(path, f"{text}\n".encode(), durable=False)
