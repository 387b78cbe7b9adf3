"""A host whose clock is wrong, for the process that imports this, and no other ever does.

The file that DROVER_TEST_SKEW names holds by how many seconds, and may change while the process
runs. Only the wall clock is touched, as somebody who sets it would.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from chassis.clock import SystemClock

_FILE = Path(os.environ["DROVER_TEST_SKEW"])
_time = time.time


def _skew():
    return float(_FILE.read_text() or 0)


time.time = lambda: _time() + _skew()
time.time_ns = lambda: int(time.time() * 1e9)
SystemClock.now = staticmethod(lambda: datetime.now(UTC) + timedelta(seconds=_skew()))
