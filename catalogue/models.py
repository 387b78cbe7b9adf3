"""Models by id, as the shipped file and the operator's know them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from catalogue.model import LongPrompt, Model, Price, SessionRates
from catalogue.reading import read

__all__ = [
    "SHIPPED",
    "Catalogue",
    "LongPrompt",
    "Model",
    "Price",
    "SessionRates",
    "load",
    "unlisted",
]

SHIPPED: Final = Path(__file__).with_name("models.json")

_SUFFIXES: Final = (
    re.compile(r"\[\w+\]$"),
    re.compile(r"-v\d+(?::\d+)?$"),
    re.compile(r"-(?:\d{8}|latest|default)$"),
)
"""What makes no other model of an id, outermost first: a client's mark, a revision, a date."""


class Catalogue:
    """The models that an installation knows.

    `models` is keyed by id, in the order they are shown in.
    """

    def __init__(self, models: Mapping[str, Model], rates: SessionRates) -> None:
        self.models = models
        self.rates = rates
        # Asked at every model request, and again for all of them when a long log is folded.
        self._found = lru_cache(maxsize=1024)(self._find)

    def of(self, model_id: str) -> Model:
        """The model of that id, in the spelling of the API, of Bedrock or of Vertex.

        An id of which only the name is in the catalogue is that model: with a date
        (`claude-opus-4-5-20251101`, `claude-opus-4-5@20251101`), or with a region and a revision
        (`us.anthropic.claude-opus-4-6-v1:0`). A release that is not listed is no older one's
        double: it is unknown, like the models of other vendors, and has no price.
        """
        return self._found(model_id)

    def _find(self, model_id: str) -> Model:
        for name in _names(model_id):
            if found := self.models.get(name):
                return found
        return Model(model_id, display_name=model_id)


def unlisted() -> Catalogue:
    """Knows of no model, and has nothing cost anything."""
    return Catalogue({}, SessionRates(running_hour=0, thousand_searches=0))


def load(path: Path | None) -> Catalogue:
    """The shipped catalogue, overlaid with the operator's file at `path`.

    What the file says of a listed model replaces what shipped, key by key, prices as a whole; what
    it leaves out of an unlisted one is as for an unknown model. Raises `CannotStartError`.
    """
    written = read(SHIPPED)
    if path is not None:
        written = written.under(read(path))
    models = {model_id: _model(model_id, said) for model_id, said in written.models.items()}
    return Catalogue(models, SessionRates(**written.rates))


def _model(model_id: str, said: Mapping[str, Any]) -> Model:
    return Model(**{"id": model_id, "display_name": model_id, "known": True, **said})


def _names(model_id: str) -> Iterator[str]:
    """The names under which an id may be listed, the longest first."""
    yield model_id
    # Behind a resource's path, and behind a region and a publisher.
    name = model_id.rpartition("/")[2].rpartition(".")[2].replace("@", "-")
    yield name
    for suffix in _SUFFIXES:
        name = suffix.sub("", name)
        yield name
