"""What dashboard, alerts and documents name, and what a running stack shows."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import yaml

from cli.stack.ports import LOOPBACK, is_free
from tests.e2e.stack import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MONITORING = ROOT / "deploy" / "monitoring"
_NAME = re.compile(r"\b(?:drover|process|python)_[a-z_]+")
_TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
_PARTS = {
    "histogram": ("_bucket", "_sum", "_count"),
    "counter": ("",),
    "gauge": ("",),
    "unknown": ("",),
    "info": ("",),
}


def expressions() -> Iterator[str]:
    """All that is asked of Prometheus."""
    board = json.loads((MONITORING / "grafana" / "drover.json").read_text())
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def named() -> set[str]:
    """The metrics of Drover's processes that are asked for."""
    return {name for text in expressions() for name in _NAME.findall(text)}


def shown(ports: Iterable[int]) -> set[str]:
    """The names under which processes on loopback show anything."""
    found = set()
    for port in ports:
        text = httpx2.get(f"http://{LOOPBACK}:{port}/metrics", timeout=60).text
        for name, kind in _TYPE.findall(text):
            found |= {f"{name}{part}" for part in _PARTS[kind]}
    return found


def free_row(count: int) -> int:
    """The first of so many free ports in a row: none of those that stacks choose among, nor of
    those that the kernel takes for outgoing connections.
    """
    above = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[1]) + 1
    while True:
        first = random.randrange(above, 65_536 - count)  # noqa: S311  # not a secret
        if all(is_free(LOOPBACK, first + n) for n in range(count)):
            return first
