"""What becomes of a call: what the engine is asked in its place, and what is told of the answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from services.engine_proxy.domain import bodies, container, images, narrowing
from services.engine_proxy.domain.calls import Asked, Kind, find
from services.engine_proxy.domain.refusal import denied, unknown
from services.engine_proxy.engine import Request

if TYPE_CHECKING:
    from services.engine_proxy.domain.container import Rules
    from services.engine_proxy.engine import Engine

_MOST_KNOWN: Final = 4096
_ID: Final = 64
_CONTAINERS: Final = "/containers/"


@dataclass(frozen=True, slots=True)
class Passed:
    """What the engine is asked. `read` makes of its answer, if it is a success, what is told."""

    request: Request
    read: Callable[[dict[str, Any]], dict[str, Any]] | None = None


class Judge:
    """Knows what is this proxy's own: by labels, which only the proxy gives.

    `images` are patterns of names that sandboxes may be made of.
    """

    def __init__(self, engine: Engine, rules: Rules, images: tuple[str, ...]) -> None:
        self._engine = engine
        self._rules = rules
        self._images = images
        self._identity = rules.places.identity
        self._known: OrderedDict[str, None] = OrderedDict()

    async def passed(self, method: str, target: str, body: bytes) -> Passed:
        """What is passed on of a call. Raises `DroverError` where that is nothing."""
        asked = find(method, target, body)
        judge = _JUDGES.get(asked.call.kind)
        return Passed(_request(asked)) if judge is None else await judge(self, asked)

    async def info(self, asked: Asked) -> Passed:
        """Less is told of the engine than it says."""
        return Passed(_request(asked), narrowing.info)

    async def volume(self, asked: Asked) -> Passed:
        """Of one volume alone is it told where it is."""
        volume = self._rules.places.volume
        if volume is None or asked.named != volume.name:
            raise unknown("volume", asked.named)
        return Passed(_request(asked))

    async def create(self, asked: Asked) -> Passed:
        """A container is made as it may be."""
        if "name" not in asked.query:
            raise denied("a container without a name of its own")
        given = container.judged(bodies.read(asked.body), self._rules)
        await self._image(given["Image"])
        return Passed(replace(_request(asked), body=bodies.written(given)), self._remembered)

    async def containers(self, asked: Asked) -> Passed:
        """Its own are listed."""
        query = narrowing.containers(asked.query, self._identity)
        return Passed(replace(_request(asked), query=query))

    async def images(self, asked: Asked) -> Passed:
        """Its own layers are listed."""
        query = narrowing.images(asked.query, self._identity)
        return Passed(replace(_request(asked), query=query))

    async def container(self, asked: Asked) -> Passed:
        """A container of its own, by the id that it has for ever."""
        found = await self._own(asked.named)
        path = f"{_CONTAINERS}{found}{asked.path[len(_CONTAINERS) + len(asked.named) :]}"
        return Passed(replace(_request(asked), path=path, upgrade=asked.call.kind is Kind.ATTACH))

    async def events(self, asked: Asked) -> Passed:
        """What became of a container of its own."""
        found = await self._own(narrowing.told_of(asked.query))
        return Passed(replace(_request(asked), query=narrowing.events(asked.query, found)))

    async def commit(self, asked: Asked) -> Passed:
        """A layer is made of a container of its own."""
        if not asked.query.keys() >= {"container", "repo", "tag"}:
            raise denied("an image of no container, or without a name")
        given = container.committed(bodies.read(asked.body or b"{}"), self._rules.places)
        name = f"{asked.query['repo']}:{asked.query['tag']}"
        there = await self._engine.told(f"/images/{name}/json")
        if there is not None and not images.is_ours(there, self._identity):
            raise denied(f"{name} is another installation's image")
        query = {**asked.query, "container": await self._own(asked.query["container"])}
        return Passed(replace(_request(asked), query=query, body=bodies.written(given)))

    async def image(self, asked: Asked) -> Passed:
        """An image that sandboxes may be made of is told of."""
        await self._image(asked.named)
        return Passed(_request(asked))

    async def remove_image(self, asked: Asked) -> Passed:
        """A layer of its own is removed."""
        await self._layer(asked.named)
        return Passed(_request(asked))

    def _remembered(self, created: dict[str, Any]) -> dict[str, Any]:
        self._know(str(created.get("Id", "")))
        return created

    def _know(self, container_id: str) -> None:
        self._known[container_id] = None
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    async def _own(self, name: str) -> str:
        """The id of a container of this proxy's. An id is for ever, and so are its labels."""
        if name in self._known:
            return name
        found = await self._engine.told(f"/containers/{name}/json")
        labels = ((found or {}).get("Config") or {}).get("Labels") or {}
        container_id = str((found or {}).get("Id", ""))
        if labels.get(container.OWN) != self._identity or len(container_id) != _ID:
            raise unknown("container", name)
        self._know(container_id)
        return container_id

    async def _image(self, name: str) -> None:
        """Raises `DroverError` for an image that is not a sandbox's."""
        if images.is_named(name, self._images):
            return
        if images.may_be_ours(name):
            found = await self._engine.told(f"/images/{name}/json")
            if found is None:
                raise unknown("image", name)
            if images.is_ours(found, self._identity) or images.has_allowed_name(
                found, self._images
            ):
                return
        raise denied(
            f"the image {name[:200]} is not among DROVER_ENGINE_IMAGES "
            f"({', '.join(self._images)}): add its name there"
        )

    async def _layer(self, name: str) -> None:
        """Raises `DroverError` for an image that is not one of this proxy's layers."""
        if images.may_be_ours(name):
            found = await self._engine.told(f"/images/{name}/json") or {}
            if images.is_ours(found, self._identity) and images.is_only_a_layer(found):
                return
        raise unknown("image", name)


def _request(asked: Asked) -> Request:
    return Request(asked.call.method, asked.path, asked.query)


_Judging = Callable[[Judge, Asked], Awaitable[Passed]]
_JUDGES: Final[Mapping[Kind, _Judging]] = {
    Kind.INFO: Judge.info,
    Kind.VOLUME: Judge.volume,
    Kind.CREATE: Judge.create,
    Kind.CONTAINERS: Judge.containers,
    Kind.CONTAINER: Judge.container,
    Kind.ATTACH: Judge.container,
    Kind.EVENTS: Judge.events,
    Kind.COMMIT: Judge.commit,
    Kind.IMAGES: Judge.images,
    Kind.IMAGE: Judge.image,
    Kind.REMOVE_IMAGE: Judge.remove_image,
}
