"""All checks, and how they are shown."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from cli.doctor import (
    cluster,
    databases,
    engine,
    machine,
    processes,
    protections,
    remote,
    sandbox,
    stores,
    vault,
)
from cli.doctor.finding import Finding, Verdict
from cli.stack.installation import Installation
from cli.terminal import Terminal
from identity.about import version

if TYPE_CHECKING:
    from pathlib import Path

_STYLES = {Verdict.FINE: "green", Verdict.OPTIONAL: "yellow", Verdict.MISSING: "bold red"}


def examine(data: Path, port: int) -> list[Finding]:
    """Every check, in the order in which a person would want to know."""
    return [
        machine.system(),
        machine.python(),
        *sandbox.bubblewrap(os.environ.get(engine.KIND, sandbox.KIND)),
        *sandbox.programs(),
        sandbox.user_namespaces(),
        sandbox.control_groups(),
        engine.docker(os.environ),
        cluster.kubernetes(os.environ),
        *protections.protections(os.environ),
        machine.ripgrep(),
        machine.model(os.environ),
        *machine.models_file(os.environ),
        machine.port(port),
        machine.disk(data),
        *databases.databases(data, os.environ),
        *vault.vault(data, port, os.environ),
        *stores.checkpoints(os.environ),
        *stores.files(os.environ),
        *processes.settings(),
        *processes.unread(os.environ),
    ]


def examine_remote(url: str, key: str | None, data: Path) -> list[Finding]:
    """Every check of an installation elsewhere. Without a `key` the one that is kept in `data`."""
    return remote.examine(url.rstrip("/"), key or Installation(data).kept_key(), version())


def show(findings: list[Finding], well: str, ill: str) -> bool:
    """Prints the findings, and `well` if nothing is missing, else `ill`; returns which."""
    console = Terminal()
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(
            finding.subject,
            f"[{_STYLES[finding.verdict]}]{finding.verdict.value}[/]",
            escape(finding.detail),
        )
        if finding.remedy:
            table.add_row("", "", f"[dim]→ {escape(finding.remedy)}[/]")
    console.print(table, highlight=False)
    able = all(finding.verdict is not Verdict.MISSING for finding in findings)
    console.print(
        well if able else ill,
        style="bold green" if able else "bold red",
    )
    return able
