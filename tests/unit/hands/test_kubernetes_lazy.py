"""The cluster's client takes a second to import, which only who has a cluster pays."""

from __future__ import annotations

import subprocess
import sys


def test_hands_start_without_the_clients_of_engine_and_cluster() -> None:
    program = (
        "import sys, services.hands.main\n"
        "print([name for name in ('kubernetes', 'docker') if name in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert shown.stdout.strip() == "[]"
