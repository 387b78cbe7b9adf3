"""Lists and events: what is asked for is narrowed to what is this proxy's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from services.engine_proxy.domain import bodies
from services.engine_proxy.domain.container import LAYER, OWN
from services.engine_proxy.domain.refusal import denied

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS: Final = {
    "label": re.compile(r"drover\.[a-z.]{1,60}(=[A-Za-z0-9_.-]{0,128})?"),
    "name": re.compile(r"\^?/?[A-Za-z0-9_.-]{1,128}\$?"),
}
_EVENTS: Final = re.compile("oom")
_MOST: Final = 8
# What the hands ask of an engine: whether it is fit, and where it writes. It says more, such as the
# proxies of its host.
_INFO: Final = (
    *("OSType", "ServerVersion", "NCPU", "MemoryLimit", "SwapLimit", "PidsLimit", "CpuCfsPeriod"),
    *("CpuCfsQuota", "SecurityOptions", "Runtimes", "DefaultRuntime"),
    *("DockerRootDir", "DriverStatus"),
)


def containers(query: Mapping[str, str], identity: str) -> dict[str, str]:
    """The query of a list of containers. Raises `DroverError`."""
    return _narrowed(query, f"{OWN}={identity}")


def images(query: Mapping[str, str], identity: str) -> dict[str, str]:
    """The query of a list of images. Raises `DroverError`."""
    return _narrowed(query, f"{LAYER}={identity}")


def told_of(query: Mapping[str, str]) -> str:
    """The one container that events are asked of. Raises `DroverError`."""
    filters = _filters(query)
    if filters.keys() != {"container", "event"} or "until" not in query:
        raise denied("events are told of one container, of one kind, and until a time")
    if len(filters["container"]) != 1 or not all(map(_EVENTS.fullmatch, filters["event"])):
        raise denied("only a container's want of memory is told")
    return filters["container"][0]


def events(query: Mapping[str, str], container: str) -> dict[str, str]:
    """The query of the events of a container, by its own id."""
    narrow = {"type": ["container"], "container": [container], "event": ["oom"]}
    return {**query, "filters": bodies.written(narrow).decode()}


def info(told: Mapping[str, Any]) -> dict[str, Any]:
    """What is passed on of what the engine says of itself."""
    return {key: told[key] for key in _INFO if key in told}


def _narrowed(query: Mapping[str, str], label: str) -> dict[str, str]:
    filters = _filters(query)
    for word, values in filters.items():
        if word not in _WORDS or not all(map(_WORDS[word].fullmatch, values)):
            raise denied(f"nothing is listed by {word[:80]}={', '.join(values)[:200]}")
    filters["label"] = [*filters.get("label", []), label]
    return {**query, "filters": bodies.written(filters).decode()}


def _filters(query: Mapping[str, str]) -> dict[str, list[str]]:
    """Filters are lists, or objects whose keys count, as clients of various ages have it."""
    found: dict[str, list[str]] = {}
    for word, values in bodies.read(query.get("filters") or "{}").items():
        if isinstance(values, dict):
            given = [value for value, counts in values.items() if counts is True]
        else:
            given = values if isinstance(values, list) else []
        if not given or len(given) > _MOST or not all(isinstance(one, str) for one in given):
            raise denied(f"the filter {word[:80]} is no list of texts")
        found[word] = given
    return found
