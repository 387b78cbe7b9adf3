"""Whether a turn late in a long session costs what the first turn of a new one costs (R9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench import baseline, turns
from bench.report import Report
from bench.stack import Stack, running_stack
from bench.statistics import Distribution

GOAL = "≤ 1.2"


@dataclass(slots=True)
class Growth:
    """Turns from the POST to idle, and bare SDK requests of the same size, in milliseconds."""

    last: int
    early: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    bare_early: list[float] = field(default_factory=list)
    bare_late: list[float] = field(default_factory=list)

    def tell(self, report: Report) -> None:
        """Adds the four latencies and their ratios."""
        rows = {
            "turn 1": self.early,
            f"turn {self.last}": self.late,
            "bare SDK request, size of turn 1": self.bare_early,
            f"bare SDK request, size of turn {self.last}": self.bare_late,
        }
        p50 = {}
        for name, samples in rows.items():
            measured = Distribution(tuple(samples))
            report.latency(name, measured)
            p50[name] = measured.percentile(0.5)
        early, late, bare_early, bare_late = p50.values()
        report.figure(f"turn {self.last} ÷ turn 1", late / early, "×")
        net = (late - bare_late) / (early - bare_early)
        report.figure(f"turn {self.last} ÷ turn 1, each net of bare", net, "×", GOAL)


async def measure(report: Report, *, scale: float) -> None:
    """Turn 300 beside turn 1."""
    async with running_stack() as stack:
        connection = stack.connect()
        body = await turns.prepare(connection)
        await connection.close()
        compared = await _compare(stack, body, last=300, rounds=max(10, int(40 * scale)))
    compared.tell(report)


async def _compare(stack: Stack, body: dict[str, str], *, last: int, rounds: int) -> Growth:
    """Lets one session grow, then takes all four in turn, so that drift meets them alike."""
    growth = Growth(last)
    connection = stack.connect()
    messages = [baseline.history(count) for count in (0, last)]
    grown = await turns.new_session(connection, body)
    async with (
        baseline.client(stack.model_url) as sdk,
        connection.stream(grown) as grown_events,
    ):
        for _ in range(last - rounds // 2):
            await turns.turn(connection, grown, grown_events, "hello")
        for _ in range(rounds):
            session = await turns.new_session(connection, body)
            async with connection.stream(session) as events:
                growth.early.append((await turns.turn(connection, session, events, "hello"))[1])
            growth.bare_early.append((await baseline.bare_request(sdk, messages[0]))[0])
            took = (await turns.turn(connection, grown, grown_events, "hello"))[1]
            growth.late.append(took)
            growth.bare_late.append((await baseline.bare_request(sdk, messages[1]))[0])
    await connection.close()
    return growth
