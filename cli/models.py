"""`drover models`: what is known of models, with the operator's file over what ships."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from catalogue.models import load
from cli.terminal import Terminal, plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from catalogue.models import Catalogue, Model, Price

_MICRO: Final = 1_000_000
_THOUSAND: Final = 1000
_WIDTH: Final = 200
_KEPT: Final = (
    "display_name",
    "context_window",
    "max_output_tokens",
    "price",
    "fast_price",
    "long_prompt",
    "adaptive_thinking",
    "efforts",
    "mid_conversation_system",
)


def show_models(file: Path | None, ids: Sequence[str], *, as_json: bool) -> None:
    """Prints the models, or those that these ids mean. Raises `CannotStartError`."""
    catalogue = load(file)
    models = [catalogue.of(one) for one in ids] or list(catalogue.models.values())
    if as_json:
        print(json.dumps(_document(catalogue, models), indent=2))
    else:
        out = Terminal()
        out.width = max(out.width, _WIDTH)  # a price that was cut short would be another one
        out.print(_table(models), highlight=False)


def _table(models: Sequence[Model]) -> Table:
    table = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        caption="Dollars per million tokens; cache writes for 5 minutes and for an hour.",
        caption_justify="left",
    )
    table.add_column("Model", no_wrap=True)
    for title in ("Window", "Output", "In", "Out", "Read", "Write", "1 h", "Fast in/out"):
        table.add_column(title, justify="right", no_wrap=True)
    for model in models:
        name = plain(model.id) if model.known else f"{plain(model.id)} (not listed)"
        table.add_row(
            name,
            _short(model.context_window),
            _short(model.max_output_tokens),
            *_prices(model.price),
            "" if model.fast_price is None else "/".join(_prices(model.fast_price)[:2]),
        )
        if model.long_prompt is not None:
            above = f"  prompts above {_short(model.long_prompt.above)}"
            table.add_row(above, "", "", *_prices(model.long_prompt.price), "", style="dim")
    return table


def _short(tokens: int) -> str:
    thousands = tokens / 1000
    return f"{thousands / 1000:g}M" if thousands >= _THOUSAND else f"{thousands:g}K"


def _prices(price: Price | None) -> list[str]:
    if price is None:
        return ["–"] * 5
    amounts = (
        price.input,
        price.output,
        price.cache_read,
        price.cache_write_5m,
        price.cache_write_1h,
    )
    return [f"{_dollars(one):g}" for one in amounts]


def _dollars(micro: int) -> float:
    return micro / _MICRO


def _document(catalogue: Catalogue, models: Sequence[Model]) -> dict[str, Any]:
    """In the shape of the file, to begin one's own with."""
    return {
        "session": {key: _number(one) for key, one in asdict(catalogue.rates).items()},
        "models": {model.id: _entry(model) for model in models},
    }


def _entry(model: Model) -> dict[str, Any]:
    said = asdict(model)
    for key in ("price", "fast_price"):
        if said[key] is not None:
            said[key] = {name: _number(one) for name, one in said[key].items()}
    if (long := said["long_prompt"]) is not None:
        long["price"] = {name: _number(one) for name, one in long["price"].items()}
    return {key: said[key] for key in _KEPT}


def _number(micro: int) -> int | float:
    whole, rest = divmod(micro, _MICRO)
    return _dollars(micro) if rest else whole
