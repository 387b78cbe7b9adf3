from __future__ import annotations

from pathlib import Path

import pytest

from cli.doctor.cluster import kubernetes
from cli.doctor.finding import Verdict
from tests.doubles.kubernetes_cluster import CLAIM, IMAGE, Cluster
from tests.doubles.kubernetes_objects import NAMESPACE


@pytest.fixture
def environ(own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr("cli.doctor.cluster._PATIENCE", 30.0)  # s, of a busy machine
    return {
        "DROVER_SANDBOX": "kubernetes",
        "DROVER_SANDBOX_IMAGE": IMAGE,
        "DROVER_KUBERNETES_NAMESPACE": NAMESPACE,
        "DROVER_KUBERNETES_VOLUME_CLAIM": CLAIM,
        "KUBECONFIG": str(own_cluster.config),
    }


def test_cluster_that_is_fit_is_named(environ: dict[str, str]) -> None:
    found = kubernetes(environ)
    assert (found.verdict, found.detail) == (
        Verdict.FINE,
        "cluster v1.33.1, namespace sandboxes, claim hands",
    )


def test_what_the_cluster_lacks_is_told(environ: dict[str, str], own_cluster: Cluster) -> None:
    assert "404" in kubernetes({**environ, "DROVER_KUBERNETES_VOLUME_CLAIM": "none"}).detail
    assert kubernetes({**environ, "DROVER_SANDBOX_IMAGE": ""}).detail == "no image is named"
    own_cluster.do(lambda server: server.denied.add(("create", "pods/attach")))
    found = kubernetes(environ)
    assert found.verdict is Verdict.MISSING
    assert found.detail == "may not create pods/attach in sandboxes"
    assert kubernetes({**environ, "DROVER_SANDBOX": "local"}).verdict is Verdict.OPTIONAL


def test_cluster_that_is_away_or_not_configured_is_told(
    environ: dict[str, str], own_cluster: Cluster, tmp_path: Path
) -> None:
    own_cluster.do(lambda server: server.stop())
    assert "no API server answers at http://127.0.0.1" in kubernetes(environ).detail
    nowhere = kubernetes({**environ, "KUBECONFIG": str(tmp_path / "none")})
    assert nowhere.detail == "no cluster is configured (ConfigException)"
    (tmp_path / "odd").write_text("{")
    odd = kubernetes({**environ, "KUBECONFIG": str(tmp_path / "odd")})
    assert odd.detail.startswith("no cluster is configured")


def test_no_cluster_is_asked_where_none_is_named() -> None:
    assert kubernetes({}).detail == "no cluster is named"
