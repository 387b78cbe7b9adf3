"""A one-tool turn through the platform, beside the same loop in one script (R2)."""

from __future__ import annotations

from typing import Final

from bench import baseline, turns
from bench.report import Report
from bench.stack import running_stack
from bench.statistics import Distribution

_GOALS: Final = ((0.5, "p50", "≤ 10"), (0.99, "p99", "≤ 30"))


async def measure(report: Report, *, scale: float) -> None:
    """Both in turns, so that drift meets them alike."""
    count = max(20, int(300 * scale))
    ours: list[float] = []
    script: list[float] = []
    async with running_stack() as stack:
        connection = stack.connect()
        body = await turns.prepare(connection)
        session = await turns.new_session(connection, body)
        async with (
            baseline.client(stack.model_url) as sdk,
            connection.stream(session) as events,
        ):
            for number in range(count + 3):
                took = (await turns.turn(connection, session, events, "use a tool"))[1]
                alone = await baseline.one_script_loop(sdk)
                if number >= 3:
                    ours.append(took)
                    script.append(alone)
        await connection.close()
    through, bare = Distribution(tuple(ours)), Distribution(tuple(script))
    report.latency("one-tool loop in one script", bare)
    report.latency("one-tool turn", through)
    for fraction, name, goal in _GOALS:
        added = through.percentile(fraction) - bare.percentile(fraction)
        report.figure(f"one-tool turn − script, {name} (R2)", added, "ms", goal)
