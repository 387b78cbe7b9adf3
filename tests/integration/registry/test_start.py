from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import update

from services.registry.main import SERVICE, build
from services.registry.store.tables import METADATA, SCHEMA, stamp_schema
from storage import open_database

if TYPE_CHECKING:
    from services.registry.main import RegistrySettings


async def test_a_database_of_another_schema_version_is_refused(settings: RegistrySettings) -> None:
    database = await open_database(settings.database(SERVICE), METADATA)
    await database.write(stamp_schema)
    await database.write(lambda connection: connection.execute(update(SCHEMA).values(version=99)))
    await database.close()
    async with AsyncExitStack() as stack:
        with pytest.raises(RuntimeError, match="schema version 99"):
            await build(settings, stack)


async def test_starting_again_over_its_own_database_is_no_change(
    settings: RegistrySettings,
) -> None:
    for _ in range(2):
        async with AsyncExitStack() as stack:
            await build(settings, stack)
