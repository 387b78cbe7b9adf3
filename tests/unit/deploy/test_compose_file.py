"""What docker-compose.yml gives to whom: every setting to those who read it, and no secret else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.settings import known_variables, settings_of

ROOT = Path(__file__).parents[3]
COMPOSED: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSED["services"]
PROCESSES = {
    "gateway": "gateway.main",
    "session": "services.session.main",
    "brain": "services.brain.main",
    "hands": "services.hands.main",
    "registry": "services.registry.main",
    "vault-proxy": "services.vault_proxy.main",
    "engine-proxy": "services.engine_proxy.main",
}
# A database of its own for one service, files that are mounted by who needs them, clusters, tests.
NOT_HERE = re.compile(
    r"DROVER_(\w+_DATABASE_URL|KUBERNETES_\w+|DATA_DIR|API_KEY|BRAIN_NAME|SYNC_POINTS"
    r"|EGRESS_CA_FILE|VAULT_KEYS_FILE|VAULT_TRANSIT_\w+_FILE|ENGINE_(BIND_ROOTS|GROUP))"
)
NO_NETWORK = {"prepare", "sandbox", "engine-proxy"}
ENGINE_PROXYS = re.compile(r"DROVER_(ENGINE_\w+|SANDBOX_\w+|LOG_LEVEL)")


def given(service: str) -> dict[str, Any]:
    found: dict[str, Any] = SERVICES[service].get("environment", {})
    return found


def mounts(service: str) -> dict[str, str]:
    """Volumes and host paths, each with its place."""
    found = {}
    for one in SERVICES[service].get("volumes", ()):
        source, place = (
            one.split(":")[:2] if isinstance(one, str) else (one["source"], one["target"])
        )
        found[source] = place
    return found


@pytest.mark.parametrize("service", PROCESSES)
def test_each_process_is_given_every_setting_that_it_reads(service: str) -> None:
    read = {setting.variable for setting in settings_of([PROCESSES[service]])}
    if service == "engine-proxy":  # it is on no network, and talks to nobody but the engine
        read = {name for name in read if ENGINE_PROXYS.fullmatch(name)}
    missing = {name for name in read - set(given(service)) if not NOT_HERE.fullmatch(name)}
    assert missing == set()


@pytest.mark.parametrize("service", PROCESSES)
def test_no_process_is_given_what_it_does_not_read(service: str) -> None:
    read = {setting.variable for setting in settings_of([PROCESSES[service]])}
    named = {name for name in given(service) if name.startswith("DROVER_")}
    assert named <= read


def test_models_credentials_are_the_brains_alone() -> None:
    secret = re.compile(r"ANTHROPIC_\w+|AWS_\w+|CLOUD_ML_\w+")
    holders = {name for name in SERVICES if any(map(secret.fullmatch, given(name)))}
    assert holders == {"brain"}


def test_what_is_secret_is_mounted_by_those_it_is_for() -> None:
    holders: dict[str, set[str]] = {}
    for service in SERVICES:
        for source in mounts(service):
            holders.setdefault(source, set()).add(service)
    assert holders["ca"] == {"prepare"}
    for process in set(PROCESSES) - {"engine-proxy"}:
        assert holders[f"tls-{process}"] == {"prepare", process}
    assert holders["tls-operator"] == {"prepare", "drover"}
    assert holders["postgres-password"] == {"prepare", "postgres"}
    # The services' user of the database is not its superuser.
    assert given("postgres")["POSTGRES_USER"] == "postgres"
    assert given("postgres")["POSTGRES_PASSWORD_FILE"].endswith("/superuser")
    assert holders["keys"] == {"prepare", "gateway", "drover"}
    assert holders["engine"] == {"engine-proxy", "hands"}
    assert holders["${DOCKER_SOCKET:-/var/run/docker.sock}"] == {"engine-proxy"}
    owners = {"registry", "session", "vault-proxy", "hands", "migrate", "drover"}
    assert holders["database"] == {"prepare", *owners}


def test_every_container_is_without_rights() -> None:
    for name, service in SERVICES.items():
        if name == "sandbox":  # runs `true`, on no network
            continue
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert service["mem_limit"], name
        assert service["pids_limit"], name
        root = service.get("user", "").startswith("0")
        assert root == (name in {"hands", "engine-proxy"}), name
    added = {name: service["cap_add"] for name, service in SERVICES.items() if "cap_add" in service}
    # Sessions' files are other users', and so are the programs that pack them.
    needed = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"]
    assert added == {"hands": needed}


def test_what_is_built_here_is_built_before_it_is_wanted_and_fetched_from_nowhere() -> None:
    for name, service in SERVICES.items():
        if "drover/" in service["image"]:
            assert service["pull_policy"] == "${DROVER_PULL_POLICY:-never}", name
        if "drover/drover" in service["image"] and "build" not in service and name != "drover":
            assert "prepare" in service["depends_on"], name


def test_every_process_is_asked_whether_it_serves() -> None:
    for name in PROCESSES:
        assert SERVICES[name]["healthcheck"]["test"][:4] == ["CMD", "python", "-m", "cli.probe"]


def test_sandboxes_reach_none_of_what_the_vault_proxy_does_not_know_by_itself() -> None:
    own = given("vault-proxy")["DROVER_EGRESS_OWN_ADDRESSES"].split(",")
    served = {name: given(name) for name in PROCESSES if name != "engine-proxy"}
    ports = {one["DROVER_METRICS_LISTEN"].rpartition(":")[2] for one in served.values()}
    assert {"gateway:8080", *(f"gateway:{port}" for port in ports)} <= set(own)


def test_networks_keep_apart_what_need_not_meet() -> None:
    networks = {name: set(service.get("networks", ())) for name, service in SERVICES.items()}
    assert {name for name, found in networks.items() if not found} == NO_NETWORK
    assert networks["postgres"] == {"databases"}
    assert {name for name, found in networks.items() if "outside" in found} == {
        "brain",
        "vault-proxy",
    }
    assert not networks["gateway"] & {"databases", "outside"}
    internal = {name: one["internal"] for name, one in COMPOSED["networks"].items() if one}
    # The one may lead to a database elsewhere.
    elsewhere = {"databases": "${DATABASES_INTERNAL:-true}"}
    assert internal == {"inside": True, "telemetry": True, **elsewhere}


def test_example_names_settings_that_there_are() -> None:
    text = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"^#?([A-Z][A-Z0-9_]+)=", text, flags=re.MULTILINE))
    used = set(re.findall(r"\$\{([A-Z_]+):", (ROOT / "docker-compose.yml").read_text()))
    passed = {name for service in SERVICES for name in given(service)}
    assert named <= used | passed
    assert {name for name in named if name.startswith("DROVER_")} <= known_variables() | used
