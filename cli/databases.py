"""Where the services keep their data, as the settings say, and how that is brought up to date."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chassis.secret import Secret
from storage.address import is_sqlite, locate, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from storage.schema import Schema

SERVICES: Final = ("registry", "session", "vault_proxy", "hands")
"""The services that have a database."""

_SUFFIX: Final = "DATABASE_URL"
_PORT: Final = 5432
_KEYS: Final = "DROVER_VAULT_"
"""What settings of the keys of stored secrets begin with."""


@dataclass(frozen=True, slots=True)
class ServiceDatabase:
    """The database of one service."""

    service: str
    url: Secret

    @classmethod
    def of(cls, service: str, environment: Mapping[str, str], data: Path) -> ServiceDatabase:
        """Where the environment says it is. Raises `CannotStartError`."""
        own, shared = (_secret(environment, name) for name in variables(service))
        return cls(service, locate(service, own, shared, data))

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file, which its service makes and brings up to date by itself."""
        return is_sqlite(self.url.open())

    @property
    def exists(self) -> bool:
        """Whether there is something already, as far as is known without asking."""
        return not self.is_sqlite or Path(self.shown).exists()

    @property
    def shown(self) -> str:
        """Where it is, without any secret. Raises `CannotStartError` for a useless URL."""
        return shown(self.url.open())

    def schema(self) -> Schema:
        """What its service keeps in it."""
        # By name: the command knows services as programs to run, not as code to call.
        schema: Schema = importlib.import_module(f"services.{self.service}.store.schema").SCHEMA
        return schema


def variables(service: str) -> tuple[str, str]:
    """The environment variables that say where a service's database is: its own, and for all."""
    return f"DROVER_{service.upper()}_{_SUFFIX}", f"DROVER_{_SUFFIX}"


VARIABLES: Final = frozenset(name for service in SERVICES for name in variables(service))
"""All of them."""


def servers(urls: Iterable[str]) -> list[str]:
    """Where database servers listen, `host:port`; none of a file. Raises `CannotStartError`."""
    found: dict[str, None] = {}
    for url in urls:
        if is_sqlite(url):
            continue
        for host in shown(url).rpartition("/")[0].split(","):
            if host and not host.startswith(("/", "the default")):
                found[host if _has_port(host) else f"{host}:{_PORT}"] = None
    return list(found)


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


def embedded(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a stack that keeps everything in its own directory, whatever is set."""
    return {
        name: value
        for name, value in environment.items()
        if name not in VARIABLES and not name.startswith(_KEYS)
    }


def migrate_all(
    databases: Iterable[ServiceDatabase], tell: Callable[[ServiceDatabase, int], None]
) -> None:
    """Applies what the databases lack, `tell`ing each revision. Raises `CannotStartError`."""
    from storage.migrate import migrate

    async def each() -> None:
        for database in databases:

            def told(revision: int, of: ServiceDatabase = database) -> None:
                tell(of, revision)

            await migrate(database.url.open(), database.schema(), told)

    asyncio.run(each())


def _secret(environment: Mapping[str, str], variable: str) -> Secret | None:
    value = environment.get(variable, "").strip()
    return Secret(value) if value else None
