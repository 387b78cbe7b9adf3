from __future__ import annotations

import copy
from typing import Any

import pytest

from chassis.errors import DroverError
from services.engine_proxy.domain import bodies
from services.engine_proxy.domain.container import LAYER, OWN, Rules, committed, judged
from services.engine_proxy.domain.places import Places, Volume
from tests.doubles.engine_peer import PLACE, mount, sandbox

PLACES = Places((), Volume("hands", PLACE))
RULES = Rules(PLACES)


def test_sandbox_is_passed_on_with_the_proxys_label_and_else_as_it_is() -> None:
    body = sandbox()
    passed = judged(copy.deepcopy(body), RULES)
    assert passed["Labels"] == {"drover.hand": "hand_1", OWN: PLACES.identity}
    assert {**passed, "Labels": body["Labels"]} == body


def test_label_of_the_proxy_is_the_proxys_to_give() -> None:
    forged = {**sandbox(), "Labels": {OWN: "another", "drover.hand": "x"}}
    assert judged(forged, RULES)["Labels"][OWN] == PLACES.identity
    image = committed({"Labels": {OWN: PLACES.identity, LAYER: "another"}}, PLACES)
    assert image["Labels"] == {OWN: "", LAYER: PLACES.identity}


# What gives a container more of its host than a sandbox has; the last two are other programs' to
# act on.
ESCAPES: dict[str, dict[str, Any]] = {
    "privileged": {"Privileged": True},
    "truth of another type": {"Privileged": 1},
    "another letter case": {"privileged": True},
    "host network": {"NetworkMode": "host"},
    "bridge": {"NetworkMode": "bridge"},
    "another's network": {"NetworkMode": "container:postgres"},
    "host processes": {"PidMode": "host"},
    "another's processes": {"PidMode": "container:postgres"},
    "host ipc": {"IpcMode": "host"},
    "host name": {"UTSMode": "host"},
    "host control groups": {"CgroupnsMode": "host"},
    "control group": {"CgroupParent": "/"},
    "another's users": {"UsernsMode": "keep-id"},
    "capabilities kept": {"CapDrop": []},
    "some capabilities kept": {"CapDrop": ["NET_RAW"]},
    "capability": {"CapAdd": ["SYS_ADMIN"]},
    "every capability": {"CapAdd": ["ALL"]},
    "no filter": {"SecurityOpt": ["no-new-privileges:true", "seccomp=unconfined"]},
    "privileges by programs": {"SecurityOpt": []},
    "own filter": {"SecurityOpt": ["no-new-privileges:true", "seccomp={}"]},
    "unmasked": {"MaskedPaths": []},
    "masked by null": {"MaskedPaths": None},
    "kernel settings": {"ReadonlyPaths": []},
    "devices": {"Devices": [{"PathOnHost": "/dev/sda", "PathInContainer": "/dev/sda"}]},
    "device rules": {"DeviceCgroupRules": ["a *:* rwm"]},
    "graphics": {"DeviceRequests": [{"Driver": "nvidia", "Count": -1}]},
    "binds": {"Binds": ["/:/host"]},
    "others' volumes": {"VolumesFrom": ["postgres"]},
    "groups": {"GroupAdd": ["0"]},
    "sysctls": {"Sysctls": {"kernel.core_pattern": "|/x"}},
    "runtime": {"Runtime": "runc-debug"},
    "storage": {"StorageOpt": {"size": "1T"}},
    "ports": {"PortBindings": {"22/tcp": [{"HostPort": "22"}]}},
    "links": {"Links": ["postgres:db"]},
    "names": {"ExtraHosts": ["x:10.0.0.1"]},
    "log elsewhere": {"LogConfig": {"Type": "syslog", "Config": {"syslog-address": "tcp://x"}}},
    "log file": {"LogConfig": {"Type": "json-file", "Config": {}}},
    "restarts": {"RestartPolicy": {"Name": "always"}},
    "removes itself": {"AutoRemove": True},
    "never dies": {"OomKillDisable": True},
    "no process limit": {"PidsLimit": 0},
    "no bound on processes": {"PidsLimit": -1},
    "no memory limit": {"Memory": 0},
    "swap": {"MemorySwap": -1},
    "no processor limit": {"NanoCpus": 0},
    "core files": {"Ulimits": []},
    "device files in memory": {"Tmpfs": {"/x": "rw,exec,nosuid,dev,size=1,mode=0755"}},
    "memory without end": {"Tmpfs": {"/x": "rw,exec,nosuid,nodev,mode=0755"}},
    "memory over the kernel's": {"Tmpfs": {"/proc/sys": "rw,exec,nosuid,nodev,size=1,mode=0755"}},
    "the host's root": {"Mounts": [mount("/")]},
    "the host's /etc": {"Mounts": [mount("/etc")]},
    "the engine": {"Mounts": [mount("/var/run/docker.sock")]},
    "up and away": {"Mounts": [mount(f"{PLACE}/../../../../../../etc")]},
    "the whole volume": {"Mounts": [mount(PLACE)]},
    "beside it": {"Mounts": [mount(f"{PLACE}-other/x")]},
    "over the kernel's": {"Mounts": [mount(f"{PLACE}/x", "/proc/1")]},
    "over all": {"Mounts": [mount(f"{PLACE}/x", "/")]},
    "up inside": {"Mounts": [mount(f"{PLACE}/x", "/a/../proc")]},
    "propagated": {"Mounts": [mount(f"{PLACE}/x") | {"BindOptions": {"Propagation": "rshared"}}]},
    "another volume": {"Mounts": [mount("other") | {"Type": "volume"}]},
    "a volume of its own driver": {
        "Mounts": [
            mount("x") | {"Type": "volume", "VolumeOptions": {"DriverConfig": {"Name": "local"}}}
        ]
    },
    "a pipe": {"Mounts": [mount(f"{PLACE}/x") | {"Type": "npipe"}]},
    "mounts of null": {"Mounts": None},
    "writable root, and something to write to": {"ReadonlyRootfs": False},
    "installs, and has something to write to": {"CapAdd": ["CHOWN"]},
}


@pytest.mark.parametrize("host", ESCAPES.values(), ids=ESCAPES)
def test_container_that_has_more_of_its_host_is_refused(host: dict[str, Any]) -> None:
    with pytest.raises(DroverError, match="the engine proxy refuses it"):
        judged(sandbox(**host), RULES)


@pytest.mark.parametrize("key", sorted({*sandbox()["HostConfig"]} - {"Init"}))
def test_what_makes_it_a_sandbox_must_be_said(key: str) -> None:
    body = sandbox()
    del body["HostConfig"][key]
    with pytest.raises(DroverError, match=f"does not say its HostConfig.{key}"):
        judged(body, RULES)


@pytest.mark.parametrize(
    "change",
    [
        {"User": "root"},
        {"User": "0:999"},
        {"User": "200001:0"},
        {"User": "0:0"},
        {"User": "00:00"},
        {"User": ""},
        {"WorkingDir": "/proc/self/fd/8"},
        {"WorkingDir": "/workspace/../proc"},
        {"Healthcheck": {"Test": ["CMD", "x"]}},
        {"NetworkDisabled": False},
        {"Tty": True},
        {"StdinOnce": False},
        {"Labels": {"com.docker.compose.project": "drover"}},
        {"Labels": {"traefik.enable": "true"}},
        {"Volumes": {"/x": {}}},
        {"NetworkingConfig": {"EndpointsConfig": {"inside": {}}}},
        {"ExposedPorts": {"22/tcp": {}}},
        {"OnBuild": ["RUN x"]},
        {"Cmd": ["x"]},
        {"hostconfig": {"Privileged": True}},
        {"HostConfig": None},
    ],
)
def test_what_a_sandbox_does_not_say_of_itself_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DroverError, match="the engine proxy refuses it"):
        judged({**sandbox(), **change}, RULES)


def test_what_installs_packages_writes_to_nothing_of_the_hosts() -> None:
    installs = {"CapAdd": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]}
    body = sandbox(ReadonlyRootfs=False, Mounts=[mount(f"{PLACE}/agent")], **installs)
    assert judged({**body, "User": "0:0"}, RULES)["HostConfig"]["CapAdd"] == installs["CapAdd"]


def test_runtime_is_the_installations() -> None:
    runsc = Rules(PLACES, "runsc")
    assert judged(sandbox(Runtime="runsc"), runsc)["HostConfig"]["Runtime"] == "runsc"
    for body, rules in ((sandbox(Runtime="runsc"), RULES), (sandbox(), runsc)):
        with pytest.raises(DroverError, match="set DROVER_SANDBOX_RUNTIME for the engine proxy"):
            judged(body, rules)


@pytest.mark.parametrize(
    "text",
    [
        b'{"HostConfig": {"Privileged": false, "Privileged": true}}',
        b'{"HostConfig": {}, "HostConfig": {"Privileged": true}}',
        b'{"a": NaN}',
        b'{"a": 1} {"b": 2}',
        b'{"a": 1}\0',
        b"\xff{}",
        b"[]",
        b"null",
        b"",
        b'{"a":' * 100_000,
    ],
)
def test_json_of_several_meanings_is_none(text: bytes) -> None:
    with pytest.raises(DroverError, match="the engine proxy does not understand"):
        bodies.read(text)
