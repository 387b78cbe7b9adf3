"""What a cluster is told, by the recorded schemas of its API and the restricted standard (S14)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.ids import new_id
from services.hands.backends.kubernetes import manifest
from services.hands.backends.kubernetes.settings import ClusterSettings
from services.hands.backends.port import SandboxSpec, Volume
from services.hands.backends.user_files import UserFiles
from services.hands.domain.limits import MIB, Limits
from tests.doubles import kubernetes_rules as rules

LIMITS = Limits(memory_bytes=512 * MIB, processes=40, cpus=1.5, tmp_bytes=8 * MIB)
SETTINGS = ClusterSettings(namespace="sandboxes", claim="hands", image="team/box:1")
ROOT = Path("/data/hands")


def told(
    limits: Limits = LIMITS,
    settings: ClusterSettings = SETTINGS,
    stores: tuple[str, ...] = (),
) -> dict[str, Any]:
    volume = Volume(ROOT / "workspaces" / "sesn_1", 200_001)
    spec = SandboxSpec(new_id("hand"), volume, limits, stores=stores)
    return manifest.pod(
        spec,
        user=200_001,
        image=settings.image,
        installation="abc",
        claim=manifest.Claim("hands", ROOT.parent),
        files=manifest.Files(
            ROOT / "kubernetes" / "agent", UserFiles(ROOT / "u" / "passwd", ROOT / "u" / "group")
        ),
        settings=settings,
    )


def refused(kind: str, given: dict[str, Any]) -> list[str]:
    as_sent = json.loads(json.dumps(given))
    return rules.unknown(kind, as_sent) or rules.amiss(as_sent)


def test_pod_and_policy_are_what_the_api_takes() -> None:
    assert refused("Pod", told()) == []
    assert refused("NetworkPolicy", manifest.network_policy("abc")) == []


@given(
    memory=st.integers(1, 1 << 48),
    cpus=st.floats(0.0001, 4096),
    tmp=st.integers(1, 1 << 40),
    named=st.sampled_from(["", "gvisor"]),
    requested=st.integers(1, 1 << 48),
)
def test_whatever_the_limits_are_the_api_takes_it(
    memory: int, cpus: float, tmp: int, named: str, requested: int
) -> None:
    limits = replace(LIMITS, memory_bytes=memory, cpus=cpus, tmp_bytes=tmp)
    settings = replace(SETTINGS, runtime=named, pull_secret=named, requested_memory=requested)
    assert refused("Pod", told(limits, settings)) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hostNetworking": True}, "hostNetworking"),
        ({"hostname": 5}, "hostname"),
        ({"volumes": {}}, "volumes"),
    ],
)
def test_schemas_are_strict(change: dict[str, Any], text: str) -> None:
    pod = told()
    pod["spec"] |= change
    assert text in "".join(refused("Pod", pod))


def test_pod_meets_the_restricted_standard() -> None:
    spec = told()["spec"]
    container = spec["containers"][0]
    for key in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostAliases"):
        assert key not in spec
    for security in (spec["securityContext"], container["securityContext"]):
        assert security["runAsNonRoot"] is True
        assert (security["runAsUser"], security["runAsGroup"]) == (200_001, 200_001)
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert "ports" not in container
    kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert kinds == {"persistentVolumeClaim", "emptyDir"}


def test_pod_has_no_token_no_names_and_no_secret() -> None:
    pod = told()
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert (spec["dnsPolicy"], spec["dnsConfig"]) == ("None", {"nameservers": ["127.0.0.1"]})
    names = [variable["name"] for variable in spec["containers"][0]["env"]]
    assert names == ["PATH", "LANG"]
    assert "DROVER" not in json.dumps(pod)


def test_session_is_mounted_from_the_claim_and_its_uploads_are_read_only() -> None:
    mounts = told()["spec"]["containers"][0]["volumeMounts"]
    claimed = {m["mountPath"]: (m["subPath"], m.get("readOnly")) for m in mounts if "subPath" in m}
    place = "hands/workspaces/sesn_1"
    assert claimed == {
        "/workspace": (f"{place}/workspace", None),
        "/mnt/session/uploads": (f"{place}/uploads", True),
        "/mnt/session/outputs": (f"{place}/outputs", None),
        "/mnt/session/home": (f"{place}/home", None),
        "/mnt/session/tool_outputs": (f"{place}/tool_outputs", None),
        "/mnt/skills": (f"{place}/skills", True),
        "/mnt/memory": (f"{place}/memory", True),
        "/run/agent": ("hands/kubernetes/agent", True),
        "/etc/passwd": ("hands/u/passwd", True),
        "/etc/group": ("hands/u/group", True),
    }


def test_memory_that_may_be_written_is_mounted_over_what_may_not() -> None:
    given = told(stores=("notes",))
    assert refused("Pod", given) == []
    mounts = {m["mountPath"]: m for m in given["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["/mnt/memory"]["readOnly"]
    assert "readOnly" not in mounts["/mnt/memory/notes"]
    assert mounts["/mnt/memory/notes"]["subPath"] == "hands/workspaces/sesn_1/memory/notes"


def test_all_that_a_pod_may_use_is_bounded() -> None:
    spec = told()["spec"]
    assert spec["activeDeadlineSeconds"] == 604_800
    sizes = {
        volume["name"]: volume["emptyDir"] for volume in spec["volumes"] if "emptyDir" in volume
    }
    assert {each["medium"] for each in sizes.values()} == {"Memory"}
    assert sizes["tmp"]["sizeLimit"] == str(8 * MIB)
    resources = spec["containers"][0]["resources"]
    assert resources["limits"] == {
        "memory": str(512 * MIB),
        "cpu": "1500m",
        "ephemeral-storage": str(1024 * MIB),
    }
    assert resources["requests"]["memory"] == str(256 * MIB)


def test_what_is_not_on_the_claim_cannot_be_mounted() -> None:
    with pytest.raises(ValueError, match="not in the subpath"):
        manifest.Claim("hands", Path("/elsewhere")).sub_path(ROOT)
