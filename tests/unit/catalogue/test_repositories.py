"""The setting of the git hosts, and the one spelling of a repository."""

from __future__ import annotations

import pytest

from catalogue.repositories import (
    DEFAULT_HOSTS,
    RepositoryError,
    canonical_repository,
    checked_hosts,
    parse_hosts,
)


def test_every_host_has_an_upstream_of_its_own():
    text = " github.com=https://github.com , GIT.corp=http://127.0.0.1:3000/, "
    assert parse_hosts(text) == {
        "github.com": "https://github.com",
        "git.corp": "http://127.0.0.1:3000",
    }
    assert parse_hosts("") == {}
    assert parse_hosts(DEFAULT_HOSTS) == {"github.com": "https://github.com"}
    assert parse_hosts("a.b=https://[::1]:8443") == {"a.b": "https://[::1]:8443"}


@pytest.mark.parametrize(
    "text",
    [
        "github.com",
        "github.com=",
        "=https://github.com",
        "github.com=github.com",
        "github.com=ssh://github.com",
        "github.com=https://user@github.com",
        "github.com=https://mirror/github",
        "github.com=https://mirror/?x",
        "github.com:8443=https://github.com",
        "https://github.com=https://github.com",
        "github.com/x=https://github.com",
        "*.corp=https://git.corp",
        "127.0.0.1=http://127.0.0.1:3000",
        "a.b=https://c,a.b=https://d",
    ],
)
def test_what_maps_no_host_to_an_upstream_is_refused(text):
    with pytest.raises(RepositoryError):
        checked_hosts(text)


@pytest.mark.parametrize("text", ["github.com", "https://github.com", "a.b=https://c,github.com/"])
def test_a_host_without_an_upstream_is_told_how_to_be_written(text):
    with pytest.raises(RepositoryError, match=r"write github\.com=https://github\.com$"):
        checked_hosts(text)


def test_a_repository_of_another_installations_host_has_the_same_spelling():
    assert canonical_repository("HTTPS://Git.Corp/a/B", None) == "https://git.corp/a/B"
    with pytest.raises(RepositoryError, match="DROVER_GIT_HOSTS"):
        canonical_repository("https://git.corp/a/b", ["github.com"])
