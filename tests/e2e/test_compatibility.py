"""Cases A2 and A4: whatever the OpenAPI description allows, and whichever SDK drives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anthropic
import pytest

from tests.doubles.messages_api import ToolUse, echo, text, tools
from tests.doubles.soak import limit, share
from tests.doubles.trust import trusting
from tests.e2e.stack import ROOT, Stack

LOCK = Path(__file__).with_name("older_sdks.txt")
OLDER = {
    line.split("==")[1].split()[0]: line.split(" ")[0]
    for line in LOCK.read_text().splitlines()
    if line.startswith("anthropic==")
}


CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)


def older_sdk(version: str, scratch: Path) -> Path:
    """A folder with an older release of the SDK, kept under build/ between runs.

    Its dependencies are those of the installed one.
    """
    folder = ROOT / "build" / "sdk" / version
    if not (folder / "anthropic" / "_version.py").exists():
        blocks = LOCK.read_text().split("anthropic==")
        pinned = next(f"anthropic=={block}" for block in blocks if block.startswith(version))
        lock = scratch / "lock.txt"
        lock.write_text(pinned)
        subprocess.run(
            [
                sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                "--require-hashes", "--target", str(folder), "-r", str(lock),
            ],
            check=True,
            env=trusting(),
        )  # fmt: skip
    return folder


@pytest.mark.parametrize("version", [anthropic.__version__, *OLDER])
def test_sdk_drives_the_golden_path(stack: Stack, version: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if "ANTHROPIC" not in name}
    if version in OLDER:
        environment["PYTHONPATH"] = str(older_sdk(version, tmp_path))
    stack.model.script(tools(ToolUse("bash", {"command": "true"})), text("driven"))
    script = Path(__file__).with_name("golden_client.py")
    done = subprocess.run(
        [sys.executable, str(script), stack.url, stack.key],
        capture_output=True,
        text=True,
        env=environment,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["version"] == version
    assert told["agent_version"] == 2
    assert told["answer"] == "driven"
    assert told["streamed"] == told["listed"]
    assert told["threads"] == ["idle"]
    assert told["archived"] == "terminated"


@pytest.mark.timeout(limit(200))
def test_nothing_that_the_description_allows_ends_in_a_5xx(stack: Stack) -> None:
    stack.model.default(echo)
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("st")), "run", f"{stack.url}/openapi.json",
            "--checks",
            ",".join(CHECKS),
            "--phases", "examples,coverage,fuzzing",
            "--exclude-path-regex", "stream$",
            "--max-examples", "12", "--max-time", str(round(share(100, least=25))), "--seed", "7",
            "--suppress-health-check", "all", "--warnings", "off", "--continue-on-failure",
            "--request-timeout", "20",
            "-H", f"x-api-key: {stack.key}",
            "-H", f"anthropic-beta: {stack.headers['anthropic-beta']}",
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    # What it has begun does not ask for what the next test has scripted.
    with stack.client() as client:
        stack.wait_for(
            lambda: not list(client.beta.sessions.list(statuses=["running", "rescheduling"])),
            "rest",
        )
