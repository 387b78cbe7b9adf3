"""The report: a table for people, JSON for machines."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.statistics import Distribution

PACKAGES = ("grpcio", "protobuf", "anthropic", "sqlalchemy", "starlette", "uvicorn")


@dataclass(slots=True)
class Report:
    """Collects figures, then prints and stores them."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def latency(self, name: str, measured: Distribution, goal: str = "") -> None:
        """Adds a latency in milliseconds."""
        self.rows.append({"name": name, "unit": "ms", **measured.summary(), "goal": goal})

    def figure(self, name: str, value: float, unit: str, goal: str = "") -> None:
        """Adds a single number."""
        self.rows.append({"name": name, "unit": unit, "p50": value, "goal": goal})

    def show(self) -> None:
        """Prints the table."""
        table = Table(title="Drover, model at 0 ms", title_justify="left")
        for heading in ("figure", "p50", "95 % of p50", "p95", "p99", "unit", "goal"):
            table.add_column(heading, justify="left" if heading in {"figure", "goal"} else "right")
        for row in self.rows:
            spread = f"{row['p50_low']:.1f}-{row['p50_high']:.1f}" if "p50_low" in row else ""
            tail = [f"{row[key]:.1f}" if key in row else "" for key in ("p95", "p99")]
            table.add_row(row["name"], f"{row['p50']:.2f}", spread, *tail, row["unit"], row["goal"])
        Console(width=118).print(table)

    def store(self, folder: Path) -> Path:
        """Writes the JSON artefact with machine, versions and commit; answers its path."""
        now = datetime.now(UTC)
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
        artefact = {
            "at": now.isoformat(),
            "commit": commit,
            "machine": {"platform": platform.platform(), "cores": os.cpu_count()},
            "python": platform.python_version(),
            "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
            "figures": self.rows,
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{now:%Y%m%dT%H%M%SZ}.json"
        path.write_text(json.dumps(artefact, indent=2) + "\n")
        return path
