"""What an operator is told to apply is what the hands ask for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from services.hands.backends.kubernetes.fitness import NEEDED
from services.hands.backends.kubernetes.settings import ClusterOptions

PAGE = Path(__file__).parents[3] / "docs" / "kubernetes.md"


def applied() -> dict[str, dict[str, Any]]:
    block = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    return {each["kind"]: each for each in yaml.safe_load_all(block)}


def test_role_allows_all_that_is_needed_and_beside_it_only_to_read_events() -> None:
    allowed = {
        (group, resource, verb)
        for rule in applied()["Role"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed - set(NEEDED) == {("", "events", "list")}
    assert set(NEEDED) <= allowed


def test_names_and_modes_are_those_of_the_settings() -> None:
    found, options = applied(), ClusterOptions()
    claim = found["PersistentVolumeClaim"]
    assert claim["metadata"]["name"] == options.kubernetes_volume_claim
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert found["Namespace"]["metadata"]["name"] == options.kubernetes_namespace
    level = found["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == options.kubernetes_pod_security


def test_every_setting_is_on_the_page() -> None:
    text = PAGE.read_text()
    for name in ClusterOptions.model_fields:
        if name.startswith("kubernetes_"):
            last = name.removeprefix("kubernetes_").upper()
            assert f"DROVER_KUBERNETES_{last}" in text or f"…_{last}" in text
