"""Settings of the services that have a database."""

from __future__ import annotations

from pydantic import Field

from chassis.secret import Secret
from chassis.settings import SecretText, Settings
from storage.address import locate


class DatabaseSettings(Settings):
    """Settings of a service with a database of its own.

    Its URL holds a password: no process but the service's own is given it. A subclass has a field
    `<service>_database_url` beside the one for all.
    """

    database_url: SecretText = Field(
        default=None,
        description="PostgreSQL for all services, postgresql://user:password@host:port/database, "
        "each in a schema of its own. Default: SQLite, DATA_DIR/<service>.db.",
    )

    def database(self, service: str) -> Secret:
        """URL of the database that `service` owns. Raises `CannotStartError`."""
        own: Secret | None = getattr(self, f"{service}_database_url")
        return locate(service, own, self.database_url, self.data_dir)
