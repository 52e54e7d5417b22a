"""The results of a check of a simulated search engine, as tables."""

from __future__ import annotations

from rich.table import Table

from evoseek.report.tables import score_text
from evoseek.simulator.check import KINDS, SimulatorCheck


def obedience_table(check: SimulatorCheck) -> Table:
    """How often replies can be read, and what they state: asked for useful documents, and for noisy ones."""
    table = Table("replies", *KINDS, title="What the simulator was asked for, 95 % intervals")
    table.add_row("can be read", *(score_text(check.readable[kind]) for kind in KINDS))
    for name in check.stating[KINDS[0]]:
        table.add_row(f"state: {name}", *(score_text(check.stating[kind][name]) for kind in KINDS))
    return table


def style_table(check: SimulatorCheck) -> Table:
    """Length and words, beside the real engine's."""
    table = Table("documents", *check.style, title="How it reads, 95 % intervals")
    styles = check.style.values()
    table.add_row("in a reply", *(f"{style.documents:.2f}" for style in styles))
    table.add_row(
        "words each", *(f"{style.words:.1f} [{style.interval.low:.1f}, {style.interval.high:.1f}]" for style in styles)
    )
    table.add_row("divergence of words (bits)", *(f"{style.divergence:.3f}" for style in styles))
    return table
