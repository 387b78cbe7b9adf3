from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from chassis.errors import CannotStartError
from services.engine_proxy.main import EngineProxySettings, build
from tests.doubles.engine_peer import Peer, proxied


async def refused(**settings: Any) -> str:
    with pytest.raises(CannotStartError) as error:
        async with AsyncExitStack() as stack:
            await build(EngineProxySettings(**settings), stack)
    return str(error.value)


async def test_whatever_keeps_it_from_starting_says_what_to_do(tmp_path: Path) -> None:
    assert "set DROVER_ENGINE_DATA_VOLUME to their volume" in await refused()
    away = {"engine_socket": tmp_path / "none", "engine_listen": f"unix:{tmp_path}/proxy"}
    told = await refused(engine_bind_roots=("/srv/drover",), **away)
    assert "reaches no container engine: No such file or directory: mount its socket" in told
    assert not (tmp_path / "proxy").exists()
    server = await asyncio.start_unix_server(Peer().serve, tmp_path / "engine")
    async with server:
        given = {**away, "engine_socket": tmp_path / "engine"}
        told = await refused(engine_data_volume="other", **given)
        assert "the engine has no volume other with a place on its machine" in told
        (tmp_path / "file").touch()
        given["engine_listen"] = f"unix:{tmp_path}/file/proxy"
        told = await refused(engine_bind_roots=("/srv/drover",), **given)
        assert "DROVER_ENGINE_LISTEN names another place" in told


async def test_socket_that_a_sandbox_could_be_given_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for sockets in (
        {"engine_listen": f"unix:{tmp_path}/data/proxy", "engine_socket": tmp_path / "engine"},
        {"engine_listen": f"unix:{tmp_path}/link/proxy", "engine_socket": tmp_path / "engine"},
        {"engine_listen": f"unix:{tmp_path}/proxy", "engine_socket": tmp_path / "data" / "engine"},
    ):
        told = await refused(engine_bind_roots=(f"{tmp_path}/data",), **sockets)
        assert "so that it could be mounted into a sandbox" in told


async def test_socket_is_its_owners_and_one_groups_and_replaces_one_that_was_left(
    tmp_path: Path,
) -> None:
    group = Path(tmp_path).stat().st_gid
    for _ in range(2):
        async with proxied(Peer(), tmp_path, engine_group=group) as path:
            found = path.stat()
            assert (found.st_mode & 0o777, found.st_gid) == (0o660, group)
        (tmp_path / "engine").unlink()
        path.touch()


@pytest.mark.parametrize(
    "settings",
    [
        {"engine_bind_roots": "/"},
        {"engine_bind_roots": "/srv/../etc"},
        {"engine_bind_roots": "srv"},
        {"engine_listen": "127.0.0.1:2375"},
        {"engine_listen": "unix:relative"},
        {"engine_data_volume": "../x"},
        {"engine_images": ""},
        {"engine_group": -1},
    ],
)
def test_settings_that_open_more_than_they_say_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EngineProxySettings(**settings)
