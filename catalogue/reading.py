"""The catalogue as it is written down: one file, read and checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NoReturn

from catalogue.model import LongPrompt, Price
from chassis.errors import CannotStartError

_MICRO: Final = 1_000_000
_LARGEST: Final = 1_000_000
"""Dollars in a price, and millions of tokens in a window: no slip of the pen is beyond them."""
_PRICES: Final = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")
_RATES: Final = ("running_hour", "thousand_searches")
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")

_Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """What files say, checked: of models by id, by the fields of `Model`, and the rates."""

    models: dict[str, _Object]
    rates: dict[str, int]

    def under(self, other: Written) -> Written:
        """Both, where what `other` says counts more."""
        models = dict(self.models)
        for model_id, said in other.models.items():
            models[model_id] = models.get(model_id, {}) | said
        return Written(models, self.rates | other.rates)


def read(path: Path) -> Written:
    """What the file at `path` says. Raises `CannotStartError`, naming the place."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text, parse_float=Decimal, object_pairs_hook=_no_twins)
    except OSError as error:
        msg = f"the list of models cannot be read from {path} ({error.strerror})"
        raise CannotStartError(msg) from error
    except ValueError as error:
        msg = f"the list of models in {path} is not JSON: {error}"
        raise CannotStartError(msg) from error
    return _Reader(path).document(document)


def _no_twins(pairs: list[tuple[str, Any]]) -> _Object:
    found: _Object = {}
    for key, value in pairs:
        if key in found:
            msg = f"{json.dumps(key)} is there twice"
            raise ValueError(msg)
        found[key] = value
    return found


class _Reader:
    """Reads one file; every refusal names it and the place in it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def document(self, value: object) -> Written:
        top = self.object("", value, {"about", "session", "models"})
        rates = self.object("session", top.get("session", {}), set(_RATES))
        models = self.object("models", top.get("models", {}))
        return Written(
            {model_id: self.model(f"models.{model_id}", said) for model_id, said in models.items()},
            {key: self.money(f"session.{key}", rate) for key, rate in rates.items()},
        )

    def model(self, at: str, value: object) -> _Object:
        said = self.object(at, value, set(_FIELDS) | {"note"})
        return {
            key: _FIELDS[key](self, f"{at}.{key}", one)
            for key, one in said.items()
            if key in _FIELDS
        }

    def text(self, at: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            self.refuse(at, "must be a text")
        return value

    def flag(self, at: str, value: object) -> bool:
        if not isinstance(value, bool):
            self.refuse(at, "must be true or false")
        return value

    def efforts(self, at: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or any(one not in _EFFORTS for one in value):
            self.refuse(at, f"must be a list of {', '.join(_EFFORTS)}")
        return tuple(one for one in _EFFORTS if one in value)

    def long_prompt(self, at: str, value: object) -> LongPrompt | None:
        if value is None:
            return None
        found = self.object(at, value, {"above", "price"}, every=True)
        above = self.count(f"{at}.above", found["above"])
        price = self.price(f"{at}.price", found["price"])
        if price is None:
            self.refuse(f"{at}.price", "must be an object")
        return LongPrompt(above, price)

    def price(self, at: str, value: object) -> Price | None:
        if value is None:
            return None
        found = self.object(at, value, set(_PRICES), every=True)
        return Price(**{key: self.money(f"{at}.{key}", found[key]) for key in _PRICES})

    def money(self, at: str, value: object) -> int:
        """Micro-dollars."""
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            self.refuse(at, "must be a number of US dollars")
        if not 0 <= value <= _LARGEST:
            self.refuse(at, f"must be between 0 and {_LARGEST} US dollars")
        micro = value * _MICRO
        if micro != int(micro):
            self.refuse(at, "must be whole millionths of a US dollar")
        return int(micro)

    def count(self, at: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.refuse(at, "must be a whole number of tokens, 1 or more")
        if value > _LARGEST * 1_000_000:
            self.refuse(at, "is more tokens than any model takes")
        return value

    def object(
        self,
        at: str,
        value: object,
        keys: set[str] | None = None,
        *,
        every: bool = False,
    ) -> _Object:
        if not isinstance(value, dict):
            self.refuse(at, "must be an object")
        if keys is not None and (unknown := value.keys() - keys):
            self.refuse(f"{at}.{min(unknown)}", f"is unknown; there are {', '.join(sorted(keys))}")
        if keys is not None and every and (missing := keys - value.keys()):
            self.refuse(f"{at}.{min(missing)}", "is missing")
        return value

    def refuse(self, at: str, reason: str) -> NoReturn:
        place = at.lstrip(".") or "all of it"
        msg = f"the list of models in {self._path} cannot be used: {place} {reason}"
        raise CannotStartError(msg)


_FIELDS: Final[dict[str, Callable[[_Reader, str, object], object]]] = {
    "display_name": _Reader.text,
    "context_window": _Reader.count,
    "max_output_tokens": _Reader.count,
    "price": _Reader.price,
    "fast_price": _Reader.price,
    "long_prompt": _Reader.long_prompt,
    "adaptive_thinking": _Reader.flag,
    "efforts": _Reader.efforts,
    "mid_conversation_system": _Reader.flag,
}
"""How each field of a model is read; `note` is for people."""
