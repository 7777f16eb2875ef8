"""Shows arms beside peers: how many times faster they are, and what is alike and what is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from serde_lab.analysis.peer_ratios import headings, peer_ratios
from serde_lab.analysis.rounding import text as rounded_text
from serde_lab.report import notation
from serde_lab.report.page import Block, Cell, Column, Section, Sentence, Table
from serde_lab.report.run.facts import ArmFacts, RunFacts

_TONES = {"ours": "good", "peer": "warn"}


def peers_section(facts: RunFacts) -> Section | None:
    """The ratios; None for a run without peers."""
    peers = [arm for arm in facts.arms if arm.kind == "peer"]
    if not peers:
        return None
    blocks: list[Block] = []
    for arm in peers:
        if arm.summary["status"] == "missing":
            blocks.append(
                Sentence(f"{notation.named(arm.name)} is missing: {arm.summary['missing']}", "warn")
            )
    ratios = peer_ratios(facts.summary)
    if ratios:
        columns = tuple(
            Column(name.replace(" ", "_"), name, numeric=place > 1)
            for place, name in enumerate(headings(ratios))
        )
        rows = tuple(
            (
                Cell(one.arm, one.arm, header=True),
                Cell(one.against, one.against),
                *(Cell(rounded_text("ratio", ratio), ratio) for ratio in (*one.commits, one.mean)),
            )
            for one in ratios
        )
        caption = (
            "How many times faster, by commit: the other\u2019s median seconds over the arm\u2019s"
        )
        blocks.append(Table("times-faster", caption, columns, rows))
    isolated = bool(facts.run.header.settings.get("isolate_peers"))
    blocks.append(Sentence(_ISOLATED if isolated else _SHARED, "muted"))
    return Section("peers", "Beside Apache Hudi", tuple(blocks))


_SHARED = (
    "All arms ran in one Spark session, in turns, with the settings that Apache Hudi needs; a run with"
    " --isolate-peers shows what the sharing does. Garbage is collected before each cell, outside the"
    " clock."
)
_ISOLATED = (
    "The peers ran in a process and a Spark session of their own, beside that of the other arms, which had"
    " none of Apache Hudi\u2019s settings. One cell ran at a time, with rounds interleaved between the two."
    " Garbage is collected before each cell, outside the clock."
)


def likeness_table(facts: RunFacts) -> Table | None:
    """What is alike and what differs, with a figure for each difference; None for a run without peers."""
    aspects = facts.run.header.likeness
    if not aspects:
        return None
    columns = (
        Column("aspect", "aspect", numeric=False),
        Column("ours", "this pipeline", numeric=False),
        Column("peer", "Apache Hudi", numeric=False),
        Column("verdict", "who does more", numeric=False),
        Column("measured", "measured in this run", numeric=False),
    )
    return Table(
        "likeness",
        "What is alike between this pipeline and Apache Hudi, and what is not",
        columns,
        tuple(_row(one, facts.arms) for one in aspects),
        sortable=False,
    )


def _row(aspect: Mapping[str, Any], arms: Sequence[ArmFacts]) -> tuple[Cell, ...]:
    name, more = str(aspect["name"]), str(aspect["more"])
    measured = "; ".join(_measured(aspect, arms))
    return (
        Cell(name, name, header=True),
        Cell(str(aspect["ours"]), str(aspect["ours"])),
        Cell(str(aspect["peer"]), str(aspect["peer"])),
        Cell(str(aspect["verdict"]), more, tone=_TONES.get(more, "")),  # type: ignore[arg-type]
        Cell(measured or notation.NOTHING, measured),
    )


def _measured(aspect: Mapping[str, Any], arms: Sequence[ArmFacts]) -> Iterable[str]:
    """The aspect's figures; arms with the same text are listed together."""
    for metric in aspect.get("metrics", ()):
        said: dict[str, list[str]] = {}
        for arm in arms:
            value = _figure(arm, metric)
            if value is not None:
                said.setdefault(_text(metric, value), []).append(arm.name)
        label = metric.rpartition(".")[2].replace("_", " ")
        if len(said) == 1:
            yield f"{label}: {next(iter(said))} in every arm"
        elif said:
            yield f"{label}: " + ", ".join(
                f"{text} in {notation.listed(names)}" for text, names in said.items()
            )
    if aspect.get("shown_in"):
        yield f"the check {aspect['shown_in']} tells it of each table"


def _figure(arm: ArmFacts, metric: str) -> float | None:
    group, _, name = metric.rpartition(".")
    if not group:
        return arm.figure(metric)
    return (arm.summary[group] or {}).get(name)


def _text(metric: str, value: float) -> str:
    if metric.endswith("_bytes"):
        return notation.size(value)
    return notation.seconds(value) if metric.endswith("_s") else notation.count(value)
