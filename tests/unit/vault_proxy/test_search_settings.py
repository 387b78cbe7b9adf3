from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.vault_proxy.web.settings import SearchSettings


def settings(monkeypatch: pytest.MonkeyPatch, **given: str) -> SearchSettings:
    for name in ("provider", "url", "api_key"):
        monkeypatch.delenv(f"DROVER_SEARCH_{name.upper()}", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(f"DROVER_SEARCH_{name.upper()}", value)
    return SearchSettings()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"provider": "none"},
        {"provider": "brave", "api_key": "key"},
        {"provider": "brave", "api_key": "key", "url": "https://brave.mirror.example"},
        {"provider": "searxng", "url": "http://127.0.0.1:8888"},
        {"provider": "searxng", "url": "http://127.0.0.1:8888", "api_key": "key"},
    ],
)
def test_what_makes_sense_is_taken(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    taken = settings(monkeypatch, **given)
    assert taken.search_provider == given.get("provider", "none")
    assert "key'" not in repr(taken)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"provider": "google"}, "search_provider"),
        ({"provider": "searxng"}, "search_url"),
        ({"provider": "searxng", "url": "127.0.0.1:8888"}, "search_url"),
        ({"provider": "searxng", "url": "ftp://a.example"}, "search_url"),
        ({"provider": "brave"}, "search_api_key"),
        ({"provider": "brave", "api_key": " "}, "search_api_key"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], field: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(monkeypatch, **given)
    assert [one["loc"] for one in refused.value.errors()] == [(field,)]
