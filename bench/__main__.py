"""`python -m bench [NAME ...]`: every figure beside its baseline, in one run on one machine."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from bench import (
    appends,
    compose,
    egress,
    fanout,
    growth,
    kills,
    length,
    mcp,
    provisioning,
    sandboxes,
    throughput,
    tool_turns,
    wakes,
)
from bench.report import Report


class Measure(Protocol):
    """Takes some of the figures."""

    def __call__(self, report: Report, *, scale: float) -> Awaitable[None]:
        """Adds them to the report; `scale` shrinks the sample counts."""
        ...


RATIOS: Final[Mapping[str, Measure]] = {
    "R1": provisioning.measure,
    "R2": tool_turns.measure,
    "R7": sandboxes.measure,
    "rate": throughput.measure,
    "R6": kills.measure,
    "R9": growth.measure,
    "R3": appends.measure,
    "length": length.measure,
    "R5": fanout.measure,
    "R4": wakes.measure,
    "R8": egress.measure,
    "mcp": mcp.measure,
}
"""What can be measured by itself, in the order of a whole run (ARCHITECTURE §12)."""

ASKED_FOR: Final[Mapping[str, Measure]] = {"compose": compose.measure}
"""What is measured only where it is named: it needs an engine, and minutes."""


async def measure(names: Sequence[str], *, scale: float) -> Report:
    """Runs these, or the whole bench."""
    report = Report()
    for name in names or RATIOS:
        await {**RATIOS, **ASKED_FOR}[name](report, scale=scale)
    return report


def _name(given: str) -> str:
    by_small = {name.lower(): name for name in (*RATIOS, *ASKED_FOR)}
    if (name := by_small.get(given.lower())) is None:
        msg = f"{given} is none of {', '.join((*RATIOS, *ASKED_FOR))}"
        raise argparse.ArgumentTypeError(msg)
    return name


def main() -> None:
    """Parses the arguments, measures, prints and stores."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        type=_name,
        help=f"of {', '.join((*RATIOS, *ASKED_FOR))}; else all but {', '.join(ASKED_FOR)}",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="shrinks the sample counts")
    parser.add_argument("--results", type=Path, default=Path("bench/results"), help="JSON folder")
    arguments = parser.parse_args()
    report = asyncio.run(measure(arguments.names, scale=arguments.scale))
    report.show()
    print(f"stored as {report.store(arguments.results)}")


if __name__ == "__main__":
    main()
