"""A cluster of the tests' own in a thread: an API server, a node, and what an operator sets up."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from services.hands.backends.cgroup import ControlGroups
from services.hands.backends.kubernetes.settings import ClusterSettings
from tests.doubles.kubernetes_api import TOKEN, ApiServer, Fault
from tests.doubles.kubernetes_objects import NAMESPACE

T = TypeVar("T")
CLAIM, IMAGE = "hands", "drover/sandbox"
_GROUPS = "drover-test-cluster"


def lacking() -> str:
    """Why no node can run a pod here; empty if one can."""
    if os.geteuid() != 0:
        return "a node of its own needs root"
    missing = [name for name in ("bwrap", "setpriv") if shutil.which(name) is None]
    return f"no {', '.join(missing)}" if missing else ""


class Cluster:
    """Speaks with the server's thread. `config` is a kubeconfig, `volume` what the claim is on."""

    def __init__(
        self, server: ApiServer, loop: asyncio.AbstractEventLoop, config: Path, volume: Path
    ) -> None:
        self._server = server
        self._loop = loop
        self.config = config
        self.volume = volume

    def settings(self, **changes: Any) -> ClusterSettings:
        given = {"image": IMAGE, "root": self.volume, "config": str(self.config), **changes}
        return ClusterSettings(**{"namespace": NAMESPACE, "claim": CLAIM, **given})

    def do(self, work: Callable[[ApiServer], T]) -> T:
        """Runs something where the server runs."""

        async def run() -> T:
            answer = work(self._server)
            return await answer if asyncio.iscoroutine(answer) else answer

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(20)

    def fail(self, method: str, path: str, status: int, **more: Any) -> Fault:
        fault = Fault(method, path, status, **more)
        self.do(lambda server: server.faults.append(fault))
        return fault

    def pods(self) -> list[str]:
        return self.do(lambda server: [name for what, _, name in server.objects if what == "pods"])

    def processes(self, name: str) -> set[int]:
        return self.do(lambda server: server.containers[name].processes())

    def asked(self, method: str, path: str) -> int:
        """How often something was asked for."""
        return self.do(
            lambda server: sum(
                request.method == method and path in request.path for request in server.requests
            )
        )


def _set_up(server: ApiServer) -> None:
    enforced = {"pod-security.kubernetes.io/enforce": "baseline"}
    server.put("namespaces", "", {"metadata": {"name": NAMESPACE, "labels": enforced}})
    claim: dict[str, Any] = {"metadata": {"name": CLAIM}, "spec": {}}
    claim["status"] = {"phase": "Bound", "accessModes": ["ReadWriteMany"]}
    server.put("persistentvolumeclaims", NAMESPACE, claim)


def _certificate(directory: Path) -> Path:
    """One for 127.0.0.1 that is its own authority, with its key."""
    place = directory / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-noenc", "-days", "2", "-subj", "/CN=it", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", place, "-out", place),
        ],
        check=True,
        capture_output=True,
    )
    return place


@contextmanager
def running_cluster(directory: Path, volume: Path, *, tls: bool = False) -> Iterator[Cluster]:
    """A cluster whose claim is on `volume`; all of it has ended afterwards."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="cluster", daemon=True)
    thread.start()
    groups = ControlGroups.find(f"{_GROUPS}-{os.getpid()}-{threading.get_native_id()}")
    server = ApiServer({CLAIM: volume}, groups)
    config = directory / "kubeconfig"
    cluster = Cluster(server, loop, config, volume)
    try:
        cluster.do(_set_up)
        scheme, trusted = "http", ""
        if tls:
            certificate = _certificate(directory)
            server.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            server.context.load_cert_chain(certificate)
            scheme, trusted = "https", f", certificate-authority: '{certificate}'"
        cluster.do(lambda server: server.start())
        config.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\n"
            f"clusters: [{{name: it, cluster: {{server: '{scheme}://127.0.0.1:{server.port}'"
            f"{trusted}}}}}]\n"
            f"users: [{{name: it, user: {{token: '{TOKEN}'}}}}]\n"
            "contexts: [{name: it, context: {cluster: it, user: it}}]\n"
        )
        yield cluster
    finally:
        cluster.do(lambda server: server.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
        groups.close()
