from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("gate", ["lint", "breaking", "fresh"])
def test_contract_is_clean_compatible_and_what_the_committed_code_was_generated_from(
    gate: str,
) -> None:
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "proto.sh"), gate],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
