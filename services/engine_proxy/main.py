"""The engine proxy process: builds it and runs it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import structlog
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from chassis import lifecycle
from chassis.errors import CannotStartError
from chassis.settings import Settings
from services.engine_proxy.domain.container import Rules
from services.engine_proxy.domain.places import is_plain
from services.engine_proxy.engine import Engine
from services.engine_proxy.judge import Judge
from services.engine_proxy.server import serving

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

SERVICE: Final = "engine_proxy"
_UNIX: Final = "unix:"

_log = structlog.get_logger("engine_proxy.main")


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part] if isinstance(value, str) else value


def _directories(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        if one == "/" or not is_plain(one):
            msg = f"{one} must be an absolute path, without .. and not the whole machine's"
            raise ValueError(msg)
    return value


def _socket(value: str) -> str:
    if not value.startswith(_UNIX) or not Path(value.removeprefix(_UNIX)).is_absolute():
        msg = "must be unix:/PATH, the one thing that can be shared with the hands alone"
        raise ValueError(msg)
    return value


class EngineProxySettings(Settings):
    """Where the engine is, and what of its machine containers may be given."""

    engine_listen: Annotated[str, AfterValidator(_socket)] = Field(
        default="unix:/run/drover/engine/engine.sock",
        description="The engine proxy's own socket, unix:/PATH; DOCKER_HOST of the hands names it.",
    )
    engine_group: int | None = Field(
        default=None,
        ge=0,
        description="Number of the group that may connect to it beside its owner: the hands'.",
    )
    engine_socket: Path = Field(
        default=Path("/var/run/docker.sock"), description="The container engine's socket."
    )
    engine_bind_roots: Annotated[
        tuple[str, ...], NoDecode, BeforeValidator(_split), AfterValidator(_directories)
    ] = Field(
        default=(),
        description="Directories of the engine's machine below which sandboxes may be given what "
        "is there, comma separated: the hands' data.",
    )
    engine_data_volume: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]*)?$",
        description="The engine's volume that is the hands' data, in place of its directory.",
    )
    engine_images: str = Field(
        default="drover/*",
        min_length=1,
        description="Names of the images that sandboxes may be made of, comma separated; * is "
        "anything, and a name without a tag has every tag.",
    )
    sandbox_runtime: str = Field(
        default="",
        description="The engine's runtime for them, or the cluster's class; default its own.",
    )


async def build(settings: EngineProxySettings, stack: AsyncExitStack) -> str:
    """Asks the engine where the hands' data are, and serves; `stack` ends it.

    Gives the value of the label that its containers have.
    """
    if not settings.engine_bind_roots and not settings.engine_data_volume:
        msg = (
            "it is not known where the hands' data are: set DROVER_ENGINE_DATA_VOLUME to their "
            "volume, or DROVER_ENGINE_BIND_ROOTS to their directory on the engine's machine"
        )
        raise CannotStartError(msg)
    path = Path(settings.engine_listen.removeprefix(_UNIX))
    _check_sockets((path, settings.engine_socket), settings.engine_bind_roots)
    engine = Engine(settings.engine_socket)
    places = await engine.places(settings.engine_bind_roots, settings.engine_data_volume)
    if not places.by_subpath:
        _log.warning(
            "links_are_followed",
            effect="an engine from version 26 on mounts paths of a volume without following "
            "links; this way of mounting has the hands trusted not to make some",
        )
    images = tuple(name.strip() for name in settings.engine_images.split(","))
    judge = Judge(engine, Rules(places, settings.sandbox_runtime), images)
    await stack.enter_async_context(serving(path, settings.engine_group, engine, judge))
    _log.info("serving", listen=settings.engine_listen, containers=places.identity)
    return places.identity


def _check_sockets(sockets: tuple[Path, ...], roots: tuple[str, ...]) -> None:
    """A sandbox that could be given one of them would be its host's root."""
    for path in sockets:
        for root in roots:
            if path.resolve().is_relative_to(Path(root).resolve()):
                msg = (
                    f"{path} is below {root}, so that it could be mounted into a sandbox: name the "
                    "hands' data alone in DROVER_ENGINE_BIND_ROOTS"
                )
                raise CannotStartError(msg)


def main() -> None:
    """Runs the proxy until it is told to stop."""
    settings = lifecycle.configured(EngineProxySettings, service=SERVICE)
    lifecycle.run(partial(build, settings), service=SERVICE, log_level=settings.log_level)


if __name__ == "__main__":
    main()
