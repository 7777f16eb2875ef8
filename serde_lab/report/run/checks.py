"""Shows the checks of contents and the fairness cards: why figures can be trusted and compared."""

from __future__ import annotations

from collections.abc import Mapping

from serde_lab.report import notation
from serde_lab.report.page import Block, Card, Cards, Cell, Column, Section, Sentence, Table
from serde_lab.report.run.facts import RunFacts
from serde_lab.report.run.peers import likeness_table
from serde_lab.runs.model import Check

_FACETS = (
    ("schema_known", "Schema"),
    ("copies", "Copies"),
    ("batching", "Batching"),
    ("trust", "Trust"),
    ("notes", "Notes"),
)


def checks_section(facts: RunFacts) -> Section:
    """Failed checks first and in full; the complete list is folded."""
    checks = facts.run.checks
    failed = [check for check in checks if not check.passed]
    blocks: list[Block] = []
    if not checks:
        blocks.append(Sentence("No check of contents was made.", "bad"))
    elif failed:
        blocks.append(
            Sentence(
                f"{notation.count(len(failed))} of {notation.count(len(checks))} checks failed.",
                "bad",
            )
        )
        blocks.append(_table("failed-checks", "The checks that failed", failed, ""))
    else:
        names = notation.listed(sorted({check.name for check in checks}))
        blocks.append(
            Sentence(f"All {notation.count(len(checks))} checks passed: {names}.", "good")
        )
    if checks:
        folded = f"All {notation.plural(len(checks), 'check')}"
        blocks.append(_table("checks", "Every check of contents", list(checks), folded))
    return Section("checks", "Checks of contents", tuple(blocks))


def _table(name: str, caption: str, checks: list[Check], folded: str) -> Table:
    columns = (
        Column("check", "check", numeric=False),
        Column("arm", "arm", numeric=False),
        Column("round", "round"),
        Column("verdict", "verdict", numeric=False),
        Column("detail", "detail", numeric=False),
    )
    rows = tuple(
        (
            Cell(check.name, check.name, header=True),
            Cell(check.arm or "all arms", check.arm),
            Cell(notation.NOTHING if check.round is None else str(check.round), check.round),
            Cell("passed", "passed", tone="good")
            if check.passed
            else Cell("failed", "failed", tone="bad"),
            Cell(check.detail, check.detail),
        )
        for check in checks
    )
    return Table(name, caption, columns, rows, folded=folded)


def fairness_section(facts: RunFacts) -> Section | None:
    """One card per strategy: what it gets for free, or is denied."""
    cards: dict[str, Card] = {}
    for arm in facts.arms:
        fairness = arm.summary["fairness"]
        if isinstance(fairness, Mapping) and arm.strategy not in cards:
            users = [a.name for a in facts.arms if a.strategy == arm.strategy]
            cards[arm.strategy] = Card(arm.strategy, _facets(fairness), _users(users))
    likeness = likeness_table(facts)
    blocks: list[Block] = []
    if cards:
        lead = "What each strategy gets for free, or is denied, as its author states it."
        blocks += [Sentence(lead), Cards(tuple(cards.values()))]
    if likeness is not None:
        blocks.append(likeness)
    return Section("fairness", "Fairness", tuple(blocks)) if blocks else None


def _facets(fairness: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    known = [(label, fairness[key]) for key, label in _FACETS if fairness.get(key)]
    listed = {key for key, _ in _FACETS}
    others = [
        (key.replace("_", " "), value) for key, value in fairness.items() if key not in listed
    ]
    return tuple((label, str(value)) for label, value in (*known, *others))


def _users(arms: list[str]) -> str:
    return "" if len(arms) == 1 else f"arms {notation.listed(arms)}"
