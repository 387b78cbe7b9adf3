"""The manifests of the production shape: what a cluster takes, and what Drover's processes need."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.settings import known_variables
from identity.table import TABLE, Caller
from tests.adversarial.tenancy.asking import process_of
from tests.doubles.kubernetes_models import faults, unknown

ROOT = Path(__file__).parents[3] / "deploy" / "kubernetes"
GRPC, EGRESS = 7000, 7001
EVERYWHERE = (
    "drover.about.v1.AboutService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1alpha.ServerReflection",
)
"""Served by every process, and asked by the gateway."""
_VERSION = re.compile(r"Kustomize Version: v(\d+)")
_WITHOUT = re.compile(r"-[0-9a-z]{10}$")
"""What a generated object's name ends with: a digest of what is in it."""


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The example as a cluster is given it, with secrets of its own."""
    found = renderer()
    if found is None:
        pytest.skip("kubectl with kustomize 5 or newer is not here")
    root = tmp_path_factory.mktemp("kubernetes") / "kubernetes"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns("secrets"))
    example = root / "example"
    (example / "secrets").mkdir()
    (example / "secrets" / "database_url").write_text("postgresql://drover:x@db.example/drover")
    environment = {**os.environ, "DROVER": f"{sys.executable} -m cli.main"}
    subprocess.run([example / "prepare"], check=True, env=environment)
    done = subprocess.run([found, "kustomize", example], check=True, capture_output=True, text=True)
    return list(yaml.safe_load_all(done.stdout))


def renderer() -> str | None:
    """The `kubectl` that can render them, if there is one."""
    found = shutil.which("kubectl")
    if found is None:
        return None
    asked = [found, "version", "--client"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    version = _VERSION.search(said)
    return found if version is not None and int(version[1]) >= 5 else None


def of(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pods' templates of everything that runs, by name."""
    workloads = of(objects, "Deployment") + of(objects, "Job")
    return {one["metadata"]["name"]: one["spec"]["template"] for one in workloads}


def component(template: dict[str, Any]) -> str:
    name: str = template["metadata"]["labels"]["app.kubernetes.io/component"]
    return name


@pytest.mark.parametrize("file", sorted(ROOT.glob("*/*.yaml")), ids=lambda file: file.name)
def test_each_manifest_and_each_patch_has_no_field_that_the_api_does_not_know(file: Path) -> None:
    for one in yaml.safe_load_all(file.read_text()):
        if one["kind"] != "Kustomization":
            assert unknown(one) == []


def test_every_object_is_what_its_kind_is(objects: list[dict[str, Any]]) -> None:
    assert [fault for one in objects for fault in (*faults(one), *unknown(one))] == []
    kinds = {one["kind"] for one in objects}
    assert {"Deployment", "Job", "Service", "Secret", "NetworkPolicy"} < kinds


def test_every_process_is_there_and_shows_its_own_certificate(
    objects: list[dict[str, Any]],
) -> None:
    seen = set()
    for name, template in pods(objects).items():
        if name == "migrate":
            continue
        (container,) = template["spec"]["containers"]
        module = container["args"][-1]
        assert importlib.util.find_spec(module) is not None
        caller = Caller(name.replace("-", "_"))
        assert module == ("gateway.main" if caller is Caller.GATEWAY else f"services.{caller}.main")
        tls = next(one for one in template["spec"]["volumes"] if one["name"] == "tls")
        assert _WITHOUT.sub("", tls["secret"]["secretName"]) == f"drover-tls-{name}"
        seen.add(caller)
    assert seen == set(Caller) - {Caller.OPERATOR}


def test_pods_meet_the_restricted_standard_and_have_no_more_than_they_need(
    objects: list[dict[str, Any]],
) -> None:
    for name, template in pods(objects).items():
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"], name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"], name
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert "memory" in container["resources"]["limits"], name
    with_accounts = {
        name for name, one in pods(objects).items() if "serviceAccountName" in one["spec"]
    }
    assert with_accounts == {"hands"}


def referred(template: dict[str, Any]) -> set[tuple[str, str, str]]:
    """The kinds and names of what a pod refers to, and a key that must be in it, if one must."""
    found = set()
    for volume in template["spec"]["volumes"]:
        if "secret" in volume:
            found.add(("Secret", volume["secret"]["secretName"], ""))
        if "persistentVolumeClaim" in volume:
            found.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"], ""))
    for container in template["spec"]["containers"]:
        for source in container.get("envFrom", ()):
            found.add(("ConfigMap", source["configMapRef"]["name"], ""))
        for variable in container["env"]:
            if secret := variable.get("valueFrom", {}).get("secretKeyRef"):
                found.add(("Secret", secret["name"], secret["key"]))
    return found


def test_what_is_referred_to_is_there(objects: list[dict[str, Any]]) -> None:
    there = {
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]): one
        for one in objects
    }
    for one in of(objects, "Deployment") + of(objects, "Job"):
        space, template = one["metadata"]["namespace"], one["spec"]["template"]
        for kind, name, key in referred(template):
            held = there.get((kind, space, name), {})
            assert held, f"{one['metadata']['name']}: {kind} {name}"
            assert not key or key in held["data"]
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        for container in template["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_every_variable_is_a_setting(objects: list[dict[str, Any]]) -> None:
    used = {key for one in of(objects, "ConfigMap") for key in one["data"]}
    for template in pods(objects).values():
        for container in template["spec"]["containers"]:
            used |= {variable["name"] for variable in container["env"]}
    assert {name for name in used if name.startswith("DROVER_")} <= known_variables()


def test_services_lead_to_their_pods(objects: list[dict[str, Any]]) -> None:
    templates = pods(objects)
    for service in of(objects, "Service"):
        template = templates[service["metadata"]["name"]]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        ports = {port["name"] for one in template["spec"]["containers"] for port in one["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_networks_let_in_whom_the_table_lets_call_and_nobody_else(
    objects: list[dict[str, Any]],
) -> None:
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for service, methods in TABLE.items():
        if service not in EVERYWHERE:
            callee = process_of(service).partition("-")[0]
            wanted[callee] |= {str(one) for callers in methods.values() for one in callers}
    policies = {one["metadata"]["name"]: one["spec"] for one in of(objects, "NetworkPolicy")}
    for callee, callers in wanted.items():
        policy = policies[callee.replace("_", "-")]
        let_in = set()
        for rule in policy["ingress"]:
            ports = {port["port"] for port in rule["ports"]}
            assert GRPC in ports
            assert ports <= {GRPC, EGRESS}
            for peer in rule["from"]:
                selector = peer["podSelector"]
                named = selector["matchLabels"].get("app.kubernetes.io/component")
                listed_ = selector.get("matchExpressions", [{"values": []}])[0]["values"]
                let_in |= {one.replace("-", "_") for one in ([named] if named else listed_)}
        # An operator's commands go through the gateway, or run beside the process itself.
        assert let_in == (callers | {Caller.GATEWAY}) - {Caller.OPERATOR}, callee
