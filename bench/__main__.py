"""`python -m bench`: every figure beside its baseline, in one run on one machine."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from bench import appends, baseline, fanout, growth, length, turns, wakes
from bench.report import Report
from bench.stack import running_stack


async def measure(*, scale: float) -> Report:
    """Runs the whole bench; `scale` shrinks the sample counts."""
    report = Report()
    count = max(10, int(100 * scale))
    async with running_stack() as stack:
        report.figure("drover up → ready", stack.ready_seconds, "s", "≤ 8")
        connection = stack.connect()
        body = await turns.prepare(connection)
        await connection.close()

        bare = await baseline.bare_requests(stack.model_url, 0, count)
        report.latency("bare SDK streaming request", bare)
        report.latency("session create", await turns.session_creates(stack, body, count))
        cold, warm = await turns.first_events(stack, body, count)
        report.latency("message → first agent event, cold", cold)
        report.latency("message → first agent event, warm", warm, "p50 ≤ 15 ms")

        script = await baseline.one_script_loops(stack.model_url, count)
        tool = await turns.one_tool_turns(stack, body, count)
        report.latency("one-tool loop in one script", script)
        report.latency("one-tool turn", tool)
        added = tool.percentile(0.5) - script.percentile(0.5)
        report.figure("one-tool turn − script, p50", added, "ms")

        rate = await turns.throughput(stack, body, 100, max(3, int(10 * scale)))
        report.figure("turns/s at 100 sessions", rate, "1/s", "≥ 50")

        compared = await growth.measure(stack, body, last=300, rounds=max(10, int(40 * scale)))
        compared.tell(report)
    await appends.measure(report, scale=scale)
    await length.measure(report, scale=scale)
    await fanout.measure(report, scale=scale)
    await wakes.measure(report, scale=scale)
    return report


def main() -> None:
    """Parses the arguments, measures, prints and stores."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="shrinks the sample counts")
    parser.add_argument("--results", type=Path, default=Path("bench/results"), help="JSON folder")
    arguments = parser.parse_args()
    report = asyncio.run(measure(scale=arguments.scale))
    report.show()
    print(f"stored as {report.store(arguments.results)}")


if __name__ == "__main__":
    main()
