from __future__ import annotations

import json

import pytest

from chassis.errors import DroverError
from services.engine_proxy.domain import images, narrowing

ID = "0123456789ab"
DIGEST = "sha256:" + "0" * 64


def filters(query: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(query["filters"])
    return found


def test_lists_are_of_what_is_the_proxys_own() -> None:
    assert filters(narrowing.containers({}, ID)) == {"label": [f"drover.proxy={ID}"]}
    asked = {"all": "1", "filters": '{"label": ["drover.installation=abc"], "name": ["^/x$"]}'}
    narrowed = narrowing.containers(asked, ID)
    assert narrowed["all"] == "1"
    assert filters(narrowed) == {
        "label": ["drover.installation=abc", f"drover.proxy={ID}"],
        "name": ["^/x$"],
    }
    older = {"filters": '{"label": {"drover.installation=abc": true, "drover.x=1": false}}'}
    assert filters(narrowing.images(older, ID)) == {
        "label": ["drover.installation=abc", f"drover.proxy.layer={ID}"]
    }


@pytest.mark.parametrize(
    "asked",
    [
        '{"label!": ["drover.proxy"]}',
        '{"volume": ["hands"]}',
        '{"label": "x"}',
        '{"label": []}',
        '{"label": [1]}',
        '{"label": ["x=y"]}',
        '{"name": [".*"]}',
        '{"label": ["drover.x=1"], "label": []}',
        "[]",
        "{",
    ],
)
def test_lists_by_other_words_are_refused(asked: str) -> None:
    with pytest.raises(DroverError):
        narrowing.containers({"filters": asked}, ID)


def test_events_are_one_containers_want_of_memory() -> None:
    query = {"since": "1", "until": "2.5", "filters": '{"container": ["x"], "event": ["oom"]}'}
    assert narrowing.told_of(query) == "x"
    assert filters(narrowing.events(query, "y")) == {
        "type": ["container"],
        "container": ["y"],
        "event": ["oom"],
    }
    for wrong in (
        {"filters": query["filters"]},
        {"until": "1"},
        {"until": "1", "filters": '{"container": ["x", "y"], "event": ["oom"]}'},
        {"until": "1", "filters": '{"container": ["x"], "event": ["exec_start"]}'},
        {"until": "1", "filters": '{"event": ["oom"]}'},
    ):
        with pytest.raises(DroverError):
            narrowing.told_of(wrong)


def test_engine_is_told_of_only_as_far_as_sandboxes_go() -> None:
    told = {"NCPU": 2, "Runtimes": {}, "Name": "host", "HttpProxy": "http://u:p@x", "Swarm": {}}
    shown = {"NCPU": 2, "Runtimes": {}, "DockerRootDir": "/var/lib/docker"}
    assert narrowing.info({**told, **shown}) == shown


def test_names_of_images_are_the_operators_with_any_tag_or_one() -> None:
    fixed = f"team/fixed@{DIGEST}"
    patterns = ("drover/*", "team/box", "team/pinned:3", "host:5000/x", fixed)
    for name in ("drover/sandbox", "drover/sandbox:2", "team/box:9", f"team/box@{DIGEST}"):
        assert images.is_named(name, patterns), name
    for name in ("team/pinned:3", "host:5000/x:1", fixed):
        assert images.is_named(name, patterns), name
    for name in ("postgres", "team/box2", "team/pinned", "team/pinned:4", "x/drover/y", DIGEST):
        assert not images.is_named(name, patterns), name
    for name in (f"team/pinned:3@{DIGEST}", "team/fixed", "team/fixed@sha256:1"):
        assert not images.is_named(name, patterns), name


def test_layer_is_ours_by_its_label_and_only_one_by_its_names() -> None:
    image = {
        "RepoTags": ["drover-packages-x:key"],
        "Config": {"Labels": {"drover.proxy.layer": ID}},
    }
    assert images.is_ours(image, ID)
    assert not images.is_ours(image, "another")
    assert not images.is_ours({"Config": None}, ID)
    assert images.is_only_a_layer(image)
    assert not images.is_only_a_layer({**image, "RepoTags": ["drover-packages-x:k", "team/box:1"]})
    assert images.is_only_a_layer({"RepoTags": None})
