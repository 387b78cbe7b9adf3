"""Which domains are registries, below which names have different owners (case E10)."""

from __future__ import annotations

from functools import lru_cache

from publicsuffixlist import PublicSuffixList


def is_registry(name: str) -> bool:
    """Whether the domains just below `name`, in canonical form, belong to different owners.

    By the public suffix list, its registries' part: below `github.io` they do as well, but of that
    the site is master. A single label is a registry whether the list knows it or not.
    """
    suffix = _list().publicsuffix(f"any.{name}")
    return suffix is None or suffix.count(".") >= name.count(".")


@lru_cache(maxsize=1)
def _list() -> PublicSuffixList:
    # 40 ms, for who needs it.
    return PublicSuffixList(only_icann=True)
