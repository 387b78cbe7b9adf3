"""Cloning in a sandbox's workspace, against a git host on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.hands.domain import repository as repositories
from services.hands.domain.repository import Repository
from services.hands.runner.clone import CLONED, THERE, clone
from services.hands.runner.failure import ToolFailure
from tests.doubles.git_server import PLAIN, git, running_git_server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_git_server(tmp_path_factory.mktemp("git")) as running:
        running.add("acme/tools", {"a.txt": "main"}, public=True, branches={"dev": {"b.txt": "x"}})
        yield running


def cloned(server, directory: Path, *, name="acme/tools", branch="", commit=""):
    return clone(
        url=f"{server.url}/{name}",
        directory=str(directory),
        branch=branch,
        commit=commit,
        environment=PLAIN,
    )["text"]


def failed(*given, **more):
    with pytest.raises(ToolFailure) as caught:
        cloned(*given, **more)
    return str(caught.value)


def entries(directory):
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def test_the_hosts_default_is_checked_out_unless_something_else_is_asked_for(server, tmp_path):
    repository = server.repositories["acme/tools"]
    main, dev = repository.commit(), repository.commit("dev")
    assert cloned(server, tmp_path / "a" / "plain") == CLONED
    assert git("-C", tmp_path / "a" / "plain", "status", "--branch", "--short").startswith(
        "## main...origin/main"
    )
    assert cloned(server, tmp_path / "dev", branch="dev") == CLONED
    assert (tmp_path / "dev" / "b.txt").read_text() == "x"
    assert git("-C", tmp_path / "dev", "status", "--branch", "--short").startswith(
        "## dev...origin/dev"
    )
    assert cloned(server, tmp_path / "pinned", commit=dev) == CLONED
    assert git("-C", tmp_path / "pinned", "rev-parse", "HEAD") == dev != main
    assert git("-C", tmp_path / "pinned", "remote", "get-url", "origin") == (
        f"{server.url}/acme/tools"
    )
    assert entries(tmp_path) == ["a", "dev", "pinned"], "nothing is left behind"


def test_what_is_there_already_is_left_as_it_is(server, tmp_path):
    kept = tmp_path / "tools"
    kept.mkdir()
    assert cloned(server, kept) == CLONED, "an empty directory is nothing"
    (kept / "a.txt").write_text("changed")
    before = len(server.requests)
    assert cloned(server, kept) == THERE
    assert (kept / "a.txt").read_text() == "changed"
    assert len(server.requests) == before


def test_a_clone_that_broke_off_is_begun_anew(server, tmp_path):
    half = tmp_path / ".tools.cloning"
    (half / "objects").mkdir(parents=True)
    assert cloned(server, tmp_path / "tools") == CLONED
    half.symlink_to("/")
    assert cloned(server, tmp_path / "more") == CLONED
    assert entries(tmp_path) == [".tools.cloning", "more", "tools"]


def test_an_empty_repository_is_cloned_as_it_is(server, tmp_path):
    git("init", "--quiet", "--bare", server.root / "acme" / "empty.git")
    server.repositories["acme/empty"] = type(server.repositories["acme/tools"])(
        server.root / "acme" / "empty.git", public=True
    )
    assert cloned(server, tmp_path / "empty", name="acme/empty") == CLONED
    assert failed(server, tmp_path / "x", name="acme/empty", branch="dev").startswith("checkout\n")


@pytest.mark.parametrize(
    ("asked", "stage"),
    [
        ({"branch": "none"}, "checkout"),
        ({"commit": "0" * 40}, "checkout"),
        ({"name": "acme/none"}, "clone"),
    ],
)
def test_a_failure_names_its_stage_and_leaves_nothing(server, tmp_path, asked, stage):
    text = failed(server, tmp_path / "tools", **asked)
    assert text.startswith(f"{stage}\n")
    assert entries(tmp_path) == []


def test_without_git_there_is_a_plain_word(server, tmp_path):
    with pytest.raises(ToolFailure, match="the sandbox has no git"):
        clone(
            url=f"{server.url}/acme/tools",
            directory=str(tmp_path / "tools"),
            branch="",
            commit="",
            environment={"PATH": str(tmp_path)},
        )


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("clone\nremote: " + repositories.UNAUTHENTICATED + ".", "repository_authentication_error"),
        ("clone\nremote: " + repositories.FORBIDDEN + ".", "repository_forbidden_error"),
        ("clone\nremote: " + repositories.NOT_FOUND + ".", "repository_not_found_error"),
        ("clone\nfatal: the remote end hung up", "repository_clone_error"),
        ("checkout\nerror: pathspec", "repository_checkout_error"),
        ("clone: timed out after 900s", "repository_clone_error"),
        ("", "repository_clone_error"),
        ("clone\n" + "x" * 9000, "repository_clone_error"),
    ],
)
def test_people_are_told_what_kind_of_failure_it_was(said, kind):
    repository = Repository("sesrsc_1", "https://github.com/acme/tools", "/workspace/tools")
    error = repositories.failure(repository, said)
    assert error.WhichOneof("error") == kind
    assert getattr(error, kind).repository_url == repository.url
    assert error.message.startswith("https://github.com/acme/tools is not in /workspace/tools: ")
    assert len(error.message) < 800
