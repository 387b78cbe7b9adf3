"""Where the cluster is."""

from __future__ import annotations

import pytest

from services.hands.backends.kubernetes.settings import (
    ClusterOptions,
    ClusterSettings,
    config_file,
)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"KUBECONFIG": "/etc/k"}, "/etc/k"),
        ({"KUBECONFIG": "/etc/k", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "/etc/k"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),
        ({"HOME": "/home/a"}, "/home/a/.kube/config"),
    ],
)
def test_configuration_is_what_is_named_then_the_pods_own_then_the_persons(
    environ: dict[str, str], found: str | None
) -> None:
    assert config_file(environ) == found


def test_every_option_reaches_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "NAMESPACE": "a",
        "VOLUME_CLAIM": "b",
        "VOLUME_ROOT": "/c",
        "PULL_SECRET": "d",
        "REQUESTED_MEMORY_MIB": "3",
        "REQUESTED_CPUS": "0.5",
        "DISK_MIB": "70",
        "START_SECONDS": "8",
        "POD_SECONDS": "90",
        "POD_SECURITY": "any",
        "PROBE": "x:1",
        "MINIMUM": "1.30",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"DROVER_KUBERNETES_{name}", value)
    plain = ClusterSettings.of(
        ClusterOptions.model_construct(), "image", "gvisor", frozenset(), {"KUBECONFIG": "/k"}
    )
    settings = ClusterSettings.of(
        ClusterOptions(), "image", "gvisor", frozenset(), {"KUBECONFIG": "/k"}
    )
    assert (settings.image, settings.runtime, settings.config) == ("image", "gvisor", "/k")
    same = {"image", "runtime", "config", "least", "threads", "seconds"}
    for field in ClusterSettings.__dataclass_fields__.keys() - same:
        assert getattr(settings, field) != getattr(plain, field), field
