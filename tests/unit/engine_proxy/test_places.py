from __future__ import annotations

import pytest

from chassis.errors import DroverError
from services.engine_proxy.domain.places import Places, Volume, is_plain

HANDS = Volume("hands", "/var/lib/docker/volumes/hands/_data")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/srv",
        "/srv/drover",
        "/srv/drover/",
        "/srv/drover/../x",
        "/srv/drover/./x",
        "/srv/drover//x",
        "//srv/drover/x",
        "/srv/drover-other/x",
        "srv/drover/x",
        "/srv/drover/x\n",
        "/srv/drover/x\0",
        "/etc",
        "/var/run/docker.sock",
        "/var/lib/docker/volumes/hands/_data",
        "/var/lib/docker/volumes/hands/_data/..",
        "/var/lib/docker/volumes/other/_data/x",
    ],
)
def test_nothing_is_given_but_what_is_below_a_root(path: str) -> None:
    with pytest.raises(DroverError):
        Places(("/srv/drover",), HANDS).mount(path, "/x", read_only=True)


def test_what_is_below_a_root_is_given_by_its_path() -> None:
    for path in ("/srv/drover/x", "/srv/drover/x/y z", f"{HANDS.mountpoint}/s/workspace"):
        given = Places(("/srv/drover",), HANDS).mount(path, "/x", read_only=True)
        assert given == {"Type": "bind", "Source": path, "Target": "/x", "ReadOnly": True}


def test_engine_that_can_is_told_to_follow_no_links_in_a_volume() -> None:
    places = Places(("/srv/drover",), HANDS, by_subpath=True)
    assert places.mount(f"{HANDS.mountpoint}/s/workspace", "/workspace", read_only=False) == {
        "Type": "volume",
        "Source": "hands",
        "Target": "/workspace",
        "ReadOnly": False,
        "VolumeOptions": {"NoCopy": True, "Subpath": "s/workspace"},
    }
    assert places.mount("/srv/drover/x", "/x", read_only=True)["Type"] == "bind"


def test_containers_of_other_places_are_others() -> None:
    some = [Places(("/a",)), Places(("/b",)), Places(("/a", "/b")), Places((), HANDS)]
    assert len({places.identity for places in some}) == len(some)
    assert Places(("/b", "/a")).identity == Places(("/a", "/b")).identity


def test_plain_paths_say_where_they_lead() -> None:
    assert is_plain("/a/b c")
    assert not any(map(is_plain, ("a", "/a/", "/a/../b", "/a//b", "//a", "/a\x7f", "/a\u200b")))
