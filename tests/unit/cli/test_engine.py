from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.doctor.engine import docker
from cli.doctor.finding import Verdict

INFO = {"ServerVersion": "20.10.24", "Runtimes": {"runc": {}, "runsc": {}}, "SecurityOptions": []}


class Engine:
    """Answers what the doctor asks."""

    def __init__(self, path: Path) -> None:
        self.environ = {"DOCKER_HOST": f"unix://{path}"}
        self.info: dict[str, Any] = dict(INFO)
        self.images = {"drover/sandbox"}
        self._server = socket.create_server(str(path), family=socket.AF_UNIX)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            with connection:
                asked = connection.recv(4096).split()
                if not asked:
                    return
                name = asked[1].decode().removeprefix("/images/").removesuffix("/json")
                found = name == "/info" or name in self.images
                body = json.dumps(self.info if name == "/info" else {}).encode()
                head = f"HTTP/1.1 {200 if found else 404} X\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(self.environ["DOCKER_HOST"].removeprefix("unix://"))
        self._thread.join()
        self._server.close()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr("cli.doctor.engine._PATIENCE", 30.0)  # s, of a busy machine
    engine = Engine(tmp_path / "s")
    yield engine
    engine.close()


def test_engine_with_the_image_can_start_sandboxes(engine: Engine) -> None:
    finding = docker(engine.environ)
    assert finding.verdict is Verdict.FINE
    assert "20.10.24" in finding.detail
    assert "runsc" in finding.detail


def test_missing_image_is_told_with_how_to_build_it(engine: Engine) -> None:
    finding = docker({**engine.environ, "DROVER_SANDBOX_IMAGE": "team/box"})
    assert finding.verdict is Verdict.OPTIONAL
    assert finding.remedy == "docker build -t team/box deploy/images/sandbox"


def test_engine_that_is_not_fit_says_why(engine: Engine) -> None:
    finding = docker({**engine.environ, "DROVER_SANDBOX_RUNTIME": "kata"})
    assert "no runtime kata, only runc, runsc" in finding.detail
    engine.info["SecurityOptions"] = ["name=rootless"]
    assert "rootless" in docker(engine.environ).detail


@pytest.mark.parametrize("host", ["unix:///nowhere/s", "tcp://10.0.0.1:2375"])
def test_without_an_engine_drover_runs_unless_its_sandboxes_are_to_be_containers(
    host: str,
) -> None:
    assert docker({"DOCKER_HOST": host}).verdict is Verdict.OPTIONAL
    assert docker({"DOCKER_HOST": host, "DROVER_SANDBOX": "docker"}).verdict is Verdict.MISSING
    assert "10.0.0.1" not in docker({"DOCKER_HOST": host}).detail
