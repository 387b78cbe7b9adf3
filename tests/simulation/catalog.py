"""Two models: one with room for everything here, and one whose window is soon full."""

from __future__ import annotations

from typing import Final

from catalogue.models import Catalogue, Model, Price, SessionRates

LARGE: Final = "sim-large"
SMALL: Final = "sim-small"

WINDOW: Final = 1_900
"""Tokens of the small one, of which the tools alone take half."""

PRICE: Final = Price(
    input=2_000_000, output=10_000_000, cache_read=200_000,
    cache_write_5m=2_500_000, cache_write_1h=4_000_000,
)  # fmt: skip


def catalogue() -> Catalogue:
    """What the services know of models."""
    models = {
        LARGE: Model(LARGE, LARGE, price=PRICE, mid_conversation_system=True, known=True),
        SMALL: Model(
            SMALL, SMALL, context_window=WINDOW, price=PRICE, mid_conversation_system=True,
            known=True,
        ),
    }  # fmt: skip
    return Catalogue(models, SessionRates(running_hour=80_000, thousand_searches=10_000_000))
