"""S4, S14: whoever has the proxy's socket has sandboxes, and nothing else of the engine's host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.engine_proxy.domain.container import LAYER as LAYER_LABEL
from services.engine_proxy.domain.container import OWN
from tests.doubles.docker_engine import IMAGE, Engine
from tests.doubles.engine_peer import (
    LAYER,
    OTHERS,
    OTHERS_LAYER,
    OURS,
    OWN_VOLUME,
    PLACE,
    Client,
    Peer,
    client_of,
    mount,
    proxied,
    sandbox,
)
from tests.doubles.engine_proxy import running_proxy

CREATE = "/v1.41/containers/create?name=drover-hand_1"
ATTACKS: list[tuple[str, str, Any]] = [
    ("POST", "/v1.41/build?remote=http://x/", None),
    ("POST", "/v1.41/images/create?fromImage=x", None),
    ("POST", "/v1.41/images/postgres/tag?repo=drover/sandbox", None),
    ("POST", f"/v1.41/containers/{OURS}/exec", {"Cmd": ["sh"], "Privileged": True}),
    ("PUT", f"/v1.41/containers/{OURS}/archive?path=/", None),
    ("POST", f"/v1.41/containers/{OURS}/update", {"Memory": 0}),
    ("POST", f"/v1.23/containers/{OURS}/start", {"Privileged": True, "Binds": ["/:/host"]}),
    ("POST", "/v1.41/volumes/create", {"DriverOpts": {"device": "/", "o": "bind", "type": "none"}}),
    ("GET", "/v1.41/volumes/other", None),
    ("POST", "/v1.41/networks/inside/connect", {"Container": OURS}),
    ("GET", "/v1.41/containers/%2e%2e/networks", None),
    ("GET", "http://engine/v1.41/networks", None),
    ("POST", "/v1.41/containers/create", sandbox()),
    ("POST", "/v1.41/containers/create?name=postgres", sandbox()),
    ("POST", "/v1.41/containers/create?name=drover-brain-3", sandbox()),
    ("POST", f"{CREATE}&platform=linux", sandbox()),
    ("POST", f"{CREATE}&name=other", sandbox()),
    ("POST", CREATE, sandbox(Privileged=True)),
    ("POST", CREATE, sandbox(Binds=["/:/host"])),
    ("POST", CREATE, sandbox(PidMode="host")),
    ("POST", CREATE, sandbox(NetworkMode="host")),
    ("POST", CREATE, sandbox(Mounts=[mount("/")])),
    ("POST", CREATE, sandbox(Mounts=[mount("/var/run/docker.sock")])),
    ("POST", CREATE, sandbox(Mounts=[mount(f"{PLACE}/../../..")])),
    ("POST", CREATE, {**sandbox(), "Image": "postgres"}),
    ("POST", CREATE, {**sandbox(), "Image": "sha256:" + "d" * 64}),
    ("POST", CREATE, {**sandbox(), "hostconfig": {"Privileged": True}}),
    ("POST", CREATE, b'{"HostConfig": {"Privileged": true}, "HostConfig": {}}'),
    ("POST", CREATE, b"x" * (1 << 20) + b"x"),
    ("GET", '/v1.41/containers/json?filters={"label":["other"]}', None),
    ("GET", "/v1.41/events", None),
    ("GET", '/v1.41/events?until=9&filters={"container":["postgres"],"event":["oom"]}', None),
    ("GET", "/v1.41/images/postgres/json", None),
    ("GET", f"/v1.41/images/{OTHERS_LAYER}/json", None),
    ("DELETE", f"/v1.41/images/{OTHERS_LAYER}", None),
    (
        "POST",
        f"/v1.41/commit?container={OURS}&repo=drover-packages-ffffffffffff&tag=other",
        {"Labels": {}},
    ),
    ("DELETE", "/v1.41/images/drover/sandbox", None),
    ("DELETE", f"/v1.41/images/{LAYER}?force=1", None),
    ("POST", "/v1.41/commit?container=postgres&repo=drover-packages-0123456789ab&tag=x", None),
    ("POST", f"/v1.41/commit?container={OURS}&repo=drover/sandbox&tag=latest", None),
    ("POST", f"/v1.41/commit?container={OURS}&repo=drover-packages-0123456789ab", None),
    (
        "POST",
        f"/v1.41/commit?container={OURS}&repo=drover-packages-0123456789ab&tag=x&changes=USER+0",
        None,
    ),
    (
        "POST",
        f"/v1.41/commit?container={OURS}&repo=drover-packages-0123456789ab&tag=x",
        {"Labels": {}, "User": "0"},
    ),
]


async def test_nothing_of_an_attack_reaches_the_engine(proxy: Path, peer: Peer) -> None:
    async with client_of(proxy) as client:
        for method, target, body in ATTACKS:
            status, told = await client.ask(method, target.replace('"', "%22"), body)
            assert status in {400, 403, 404, 413}, (method, target, told)
            assert told["message"]
            assert [line for line in peer.passed if "/images/" not in line] == [], (method, target)
    assert not [line for line in peer.asked if not line.startswith("GET ")]


@pytest.mark.parametrize("name", [OTHERS, "postgres", OTHERS[:12], "nobody", "drover-none"])
async def test_anothers_container_is_as_if_it_were_not_there(
    proxy: Path, peer: Peer, name: str
) -> None:
    async with client_of(proxy) as client:
        for method, rest in (
            ("GET", "/json"),
            ("POST", "/start"),
            ("POST", "/wait"),
            ("DELETE", "?force=True&v=True"),
        ):
            answer = await client.ask(method, f"/v1.41/containers/{name}{rest}")
            assert answer == (404, {"message": f"No such container: {name}"})
    assert not [line for line in peer.asked if not line.startswith("GET ")]


async def test_own_container_is_asked_for_by_its_id_whatever_it_was_called(
    proxy: Path, peer: Peer
) -> None:
    async with client_of(proxy) as client:
        status, _ = await client.ask("DELETE", "/v1.24/containers/drover-ours?force=True&v=1")
        assert status == 200
    assert peer.asked[-1] == f"DELETE /v1.41/containers/{OURS}?force=True&v=1"


async def test_what_the_engine_reads_was_written_by_the_proxy(proxy: Path, peer: Peer) -> None:
    body = json.dumps(sandbox()).replace("{", "{\n\n ").encode()
    async with client_of(proxy) as client:
        assert await client.ask("POST", CREATE, body) == (201, {"Id": OURS, "Warnings": []})
        written = json.loads(peer.bodies[-1])
        assert written["Labels"][OWN] == peer.identity
        assert peer.bodies[-1] == json.dumps(written).encode()
        asked = len(peer.asked)
        await client.ask("POST", f"/v1.41/containers/{OURS}/start")
        assert len(peer.asked) == asked + 1  # one that it has made is known


async def test_engine_that_can_follows_no_links_in_the_volume(tmp_path: Path) -> None:
    """Hands that were taken over could swap a directory for a link, just when it is mounted."""
    peer = Peer(api_version="1.45")
    async with proxied(peer, tmp_path) as proxy, client_of(proxy) as client:
        assert (await client.ask("POST", CREATE, sandbox()))[0] == 201
    (mounted,) = json.loads(peer.bodies[-1])["HostConfig"]["Mounts"]
    assert (mounted["Type"], mounted["Source"]) == ("volume", OWN_VOLUME)
    assert mounted["VolumeOptions"]["Subpath"] == "s/workspace"


async def test_less_is_told_than_the_engine_says(proxy: Path) -> None:
    async with client_of(proxy) as client:
        assert await client.ask("GET", "/info") == (200, {"OSType": "linux", "NCPU": 2})


async def test_layers_of_its_own_are_its_own(proxy: Path, peer: Peer) -> None:
    async with client_of(proxy) as client:
        assert (await client.ask("POST", CREATE, {**sandbox(), "Image": LAYER}))[0] == 201
        assert (await client.ask("DELETE", f"/v1.41/images/{LAYER}?force=False"))[0] == 200
        made = f"/v1.41/commit?container={OURS}&repo=drover-packages-0123456789ab&tag=x&pause=True"
        assert (await client.ask("POST", made, {"Labels": {OWN: "forged"}}))[0] == 200
    assert json.loads(peer.bodies[-1])["Labels"] == {OWN: "", LAYER_LABEL: peer.identity}


async def test_real_engines_other_containers_are_out_of_reach(
    docker_engine: Engine, tmp_path: Path
) -> None:
    """Among them one with the very labels of the hands, and one of an image made of a sandbox."""
    label = "drover.installation=0123456789ab"
    with running_proxy(docker_engine, roots=tmp_path) as proxy:
        (tmp_path / "work").mkdir()
        body = sandbox(
            Mounts=[mount(f"{tmp_path}/work")], ReadonlyRootfs=False, CapAdd=["CHOWN"]
        ) | {"Entrypoint": ["true"], "Image": IMAGE, "Labels": dict([label.split("=")])}
        async with client_of(proxy.path) as client:
            status, made = await client.ask("POST", CREATE, body)
            assert status == 201, made
            commit = "container=drover-hand_1&repo=drover-packages-0123456789ab&tag=x"
            status, layer = await client.ask("POST", f"/v1.41/commit?{commit}", {"Labels": {}})
            assert status == 201, layer
            others = [
                docker_engine.docker("create", "--label", label, IMAGE, "true"),
                docker_engine.docker("create", layer["Id"], "true"),
            ]
            await _is_out_of_reach(client, made["Id"], others)
            assert (await client.ask("DELETE", f"/containers/{made['Id']}?force=1"))[0] == 204
        for other in others:
            docker_engine.docker("rm", other)
        docker_engine.docker("rmi", layer["Id"])


async def _is_out_of_reach(client: Client, own: str, others: list[str]) -> None:
    filters = "%7B%22label%22:%5B%22drover.installation=0123456789ab%22%5D%7D"
    _, listed = await client.ask("GET", f"/containers/json?all=1&filters={filters}")
    assert [container["Id"] for container in listed] == [own]
    for other in others:
        for name in (other, other[:12]):
            assert (await client.ask("GET", f"/containers/{name}/json"))[0] == 404
            assert (await client.ask("DELETE", f"/containers/{name}?force=1"))[0] == 404
            assert (await client.ask("POST", f"/containers/{name}/start"))[0] == 404
