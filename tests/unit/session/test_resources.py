"""Which repositories a session takes, and where they lie."""

from __future__ import annotations

import itertools

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import session_pb2 as pb
from services.session.domain.resources import given as resources

HOSTS = {"github.com", "git.corp"}
URL = "https://github.com/acme/tools"
SHA = "0123456789abcdef0123456789abcdef01234567"


def repository(url=URL, **fields):
    return pb.SessionResource(github_repository=pb.GithubRepositoryResource(url=url, **fields))


def accept(*given):
    numbers = itertools.count(1)
    made = resources.accept(given, HOSTS, lambda prefix: f"{prefix}_{next(numbers)}")
    return made.resources, made.tokens


def refused(*given):
    with pytest.raises(DroverError) as caught:
        accept(*given)
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    return caught.value.message


def branch(name):
    return pb.Checkout(branch=pb.BranchCheckout(name=name))


def commit(sha):
    return pb.Checkout(commit=pb.CommitCheckout(sha=sha))


def test_a_repository_is_mounted_under_its_name_and_its_token_is_apart():
    kept, tokens = accept(repository("https://GitHub.com/acme/Tools", authorization_token="t-1"))
    (one,) = kept
    assert one.github_repository == pb.GithubRepositoryResource(
        id="sesrsc_1", url="https://github.com/acme/Tools", mount_path="/workspace/Tools"
    )
    assert tokens == {"sesrsc_1": "t-1"}


@pytest.mark.parametrize(
    "url",
    [
        "git@github.com:acme/tools",
        "ssh://git@github.com/acme/tools",
        "http://github.com/acme/tools",
        "github.com/acme/tools",
        "https://github.com/acme/tools.git",
        "https://github.com/acme/tools.GIT",
        "https://github.com/acme",
        "https://github.com/acme/",
        "https://github.com/acme/tools/",
        "https://github.com/acme/tools/tree/main",
        "https://github.com/acme/..",
        "https://github.com/../tools",
        "https://github.com//acme/tools",
        "https://github.com/acme/to%6fls",
        "https://github.com/acme/tools?x=1",
        "https://github.com/acme/tools?",
        "https://github.com/acme/tools#x",
        "https://github.com:8443/acme/tools",
        "https://user@github.com/acme/tools",
        "https://token:x@github.com/acme/tools",
        "https://gitlab.com/acme/tools",
        "https://github.com.evil.example/acme/tools",
        "https://127.0.0.1/acme/tools",
        "https://github.com\\@evil.example/acme/tools",
        "https://github.com/acme/to ols",
        "https://github.com/acme/tools\n",
        "",
    ],
)
def test_urls_that_are_no_repository_of_a_known_host_are_refused(url):
    assert refused(repository(), repository(url)).startswith("resources.1.url: ")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/workspace",
        "/workspace/",
        "/workspace//a",
        "/workspace/a/",
        "/workspace/../etc",
        "/workspace/a/../../etc",
        "/workspace/./a",
        "/workspaces/a",
        "/mnt/session/uploads/a",
        "workspace/a",
        "/workspace/a\n",
        "/workspace/a\0",
        "/workspace/.git",
        "/workspace/.GIT/hooks",
        "/workspace/" + "a" * 256,
    ],
)
def test_mount_paths_are_below_the_workspace(path):
    assert refused(repository(mount_path=path)).startswith("resources.0.mount_path: ")


def test_repositories_do_not_lie_in_each_others_place():
    other = "https://git.corp/acme/tools"
    assert "resources.0" in refused(repository(), repository(other))
    assert len(accept(repository(), repository(other, mount_path="/workspace/more"))[0]) == 2
    for place in ("/workspace/tools", "/workspace/tools/vendor"):
        message = refused(repository(), repository(other, mount_path=place))
        assert message.startswith("resources.1.mount_path: ")
    nested = repository(mount_path="/workspace/a/b"), repository(other, mount_path="/workspace/a")
    assert refused(*nested).startswith("resources.1.mount_path: ")
    again = repository(mount_path="/workspace/again")
    assert refused(repository(), again).startswith("resources.1.url: ")


@pytest.mark.parametrize(
    "checkout",
    [
        branch("main"),
        branch("feature/x-1"),
        branch("v1.2"),
        branch("größer"),
        commit(SHA),
        commit(SHA + SHA[:24]),
    ],
)
def test_a_branch_or_a_commit_is_checked_out(checkout):
    kept, _ = accept(repository(checkout=checkout))
    assert kept[0].github_repository.checkout == checkout


@pytest.mark.parametrize(
    "name",
    [
        *("-x", "--upload-pack=evil", "a b", "a..b", "a~1", "a^", "a:b", "a?", "*", "[a", "a\\b"),
        *("a@{1}", "@", "/a", "a/", "a//b", ".a", "a/.b", "a.", "a.lock", "a.lock/b", "a\nb"),
        "x" * 245,
    ],
)
def test_what_git_takes_for_no_branch_is_refused(name):
    message = refused(repository(checkout=branch(name)))
    assert message.startswith("resources.0.checkout.name: ")


@pytest.mark.parametrize("sha", ["main", SHA[:7], SHA.upper(), SHA + "0", f"{SHA}\n"])
def test_a_commit_is_named_by_its_whole_hash(sha):
    message = refused(repository(checkout=commit(sha)))
    assert message.startswith("resources.0.checkout.sha: ")


@pytest.mark.parametrize("token", ["", " ", "a b", "a\r\nb", "a\0", "tökén", "x" * 8193])
def test_what_cannot_go_into_a_header_is_no_token(token):
    message = refused(repository(authorization_token=token))
    assert message.startswith("resources.0.authorization_token: ")
    assert not token.strip() or token not in message
