"""What web_search asks: one module for each kind of search provider."""

from __future__ import annotations
