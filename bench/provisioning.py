"""Time to first token: hands made on demand, beside hands that every session waits for first (R1).

The hands of a session that couples them are a container which is started before the model is asked.
How long that takes is drawn from the fit that Joosen et al. give for the 11.9 million cold starts
of a public cloud ("Serverless Cold Starts and Where to Find Them", EuroSys 2025,
arXiv:2410.06145): log-normal, with a mean of 3.24 s and a standard deviation of 7.10 s, quoted
without having had the paper's text at hand. It is added to a turn that was measured here and not
slept through: nothing happens meanwhile.
"""

from __future__ import annotations

import math
import random
from typing import Final

from bench import turns
from bench.report import Report
from bench.stack import running_stack
from bench.statistics import Distribution

MEAN: Final = 3_240.0
DEVIATION: Final = 7_100.0
"""Milliseconds that a container takes to start: the fit's mean and standard deviation."""

_DRAWS: Final = 50
"""Of the fit for each turn that is measured: its tail is long."""


async def measure(report: Report, *, scale: float) -> None:
    """Sessions are new each time; the first token is the first agent event, the model at 0 ms."""
    count = max(10, int(100 * scale))
    async with running_stack() as stack:
        report.figure("drover up → ready", stack.ready_seconds, "s", "≤ 8")
        connection = stack.connect()
        body = await turns.prepare(connection)
        await connection.close()
        report.latency("session create", await turns.session_creates(stack, body, count))
        cold, warm = await turns.first_events(stack, body, count)
    report.latency("message → first agent event, cold", cold)
    report.latency("message → first agent event, warm", warm, "p50 ≤ 12 ms")
    coupled = hands_first(cold)
    report.latency("the same, hands first", coupled)
    for fraction, name, goal in ((0.5, "p50", "≤ 0.30"), (0.95, "p95", "≤ 0.05")):
        ratio = cold.percentile(fraction) / coupled.percentile(fraction)
        report.figure(f"first token, on demand ÷ hands first, {name} (R1)", ratio, "×", goal)


def hands_first(on_demand: Distribution) -> Distribution:
    """What turns take whose hands have to be there first."""
    variance = math.log(1 + (DEVIATION / MEAN) ** 2)
    source = random.Random(1)  # noqa: S311  # to be drawn again
    mu, sigma = math.log(MEAN) - variance / 2, math.sqrt(variance)
    return Distribution(
        tuple(
            source.lognormvariate(mu, sigma) + turn
            for turn in on_demand.samples
            for _ in range(_DRAWS)
        )
    )
