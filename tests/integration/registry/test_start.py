from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import update

from chassis.errors import CannotStartError
from services.registry.main import SERVICE, build
from services.registry.store.schema import SCHEMA
from storage import open_database
from storage.schema import ALEMBIC_VERSION, SCHEMA_FLOOR

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from services.registry.main import RegistrySettings


async def test_tables_that_only_newer_releases_can_use_are_refused(
    settings: RegistrySettings,
) -> None:
    database = await open_database(settings.database(SERVICE).open(), SCHEMA)

    def renew(connection: Connection) -> None:
        connection.execute(update(ALEMBIC_VERSION).values(version_num="0099"))
        connection.execute(update(SCHEMA_FLOOR).values(oldest=98))

    await database.write(renew)
    await database.close()
    async with AsyncExitStack() as stack:
        with pytest.raises(CannotStartError, match="run a newer release"):
            await build(settings, stack)


async def test_starting_again_over_its_own_database_is_no_change(
    settings: RegistrySettings,
) -> None:
    for _ in range(2):
        async with AsyncExitStack() as stack:
            await build(settings, stack)
