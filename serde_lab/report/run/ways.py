"""Shows what each way of upserting costs and what it does not give, in a Hudi table and without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serde_lab.analysis.rounding import text as rounded_text
from serde_lab.analysis.run_values import ArmValues, RunValues
from serde_lab.report import notation
from serde_lab.report.page import (
    MISSING,
    Cell,
    Column,
    Section,
    Sentence,
    Table,
    ratio_cell,
    text_columns,
)

_COLUMNS = (
    *text_columns("arm", "table"),
    Column("seconds", "seconds"),
    Column("ratio", "ratio", about="seconds over the reference's, geometric mean over rounds"),
    Column("tree_cpu_s", "all CPU", unit="s", about="of the whole process tree"),
    Column("cpu_ratio", "CPU ratio"),
    Column("table_bytes", "files", about="bytes of the files that a reader of the table reads"),
    Column("lacks", "does not give", numeric=False),
)
_SESSION_COLUMNS = text_columns("arms", "serializer", "SQL extensions", "jars", "other settings")
_SERIALIZER, _EXTENSIONS = "spark.serializer", "spark.sql.extensions"
_DEFAULT_SERIALIZER = "Spark's default (Java)"


def ways_sentences(facts: RunValues) -> tuple[Sentence, ...]:
    """The answer in words: seconds and CPU of each way, and what each kind of table does not give."""
    ways = _ways(facts)
    costs = [
        f"{notation.named(arm.name)} {notation.seconds(arm.seconds)}"
        + ("" if cpu is None else f" ({notation.seconds(cpu)} of CPU)")
        for arm, _ in ways
        if arm.seconds is not None
        for cpu in (arm.figure("tree_cpu_s"),)
    ]
    if not costs:
        return ()
    lacks = dict.fromkeys(
        (str(way["table"]), tuple(way["lacks"])) for _, way in ways if way["lacks"]
    )
    return (
        Sentence(f"The same upserts took: {notation.listed(costs)}."),
        *(
            Sentence(f"What {table} {_verb(table)} not give: {notation.listed(found)}.")
            for table, found in lacks
        ),
    )


def _verb(table: str) -> str:
    return "does" if table.startswith("a") else "do"


def ways_section(facts: RunValues) -> Section | None:
    """The costs with what is not given; None for a run whose arms all write Hudi tables."""
    ways = _ways(facts)
    if not ways:
        return None
    caption = "What each way of upserting costs, and what its table does not give"
    table = Table("ways", caption, _COLUMNS, tuple(_row(arm, way) for arm, way in ways))
    note = Sentence(
        "Every arm ends with the same rows, which are checked. A table that gives less takes less work, so a"
        " ratio does not compare formats alone.",
        "muted",
    )
    missing = [
        Sentence(f"{notation.named(arm.name)} was left out: {arm.summary['missing']}", "warn")
        for arm, _ in ways
        if arm.summary["missing"]
    ]
    blocks = (table, note, _aspects(facts), _sessions(facts))
    return Section.of("ways", "What each way costs", *missing, *blocks)


def _ways(facts: RunValues) -> list[tuple[ArmValues, Mapping[str, Any]]]:
    stored = facts.run.header.ways
    if not stored:
        return []
    arms = {arm.name: arm for arm in facts.arms}
    return [(arms[str(way["arm"])], way) for way in stored if way["arm"] in arms]


def _row(arm: ArmValues, way: Mapping[str, Any]) -> tuple[Cell, ...]:
    cpu_s, size = arm.figure("tree_cpu_s"), arm.figure("table_bytes")
    lacks = ", ".join(way["lacks"])
    return (
        Cell(arm.name, arm.name, header=True),
        Cell(str(way["table"]), str(way["table"])),
        Cell(rounded_text("seconds", arm.seconds), arm.seconds) if not arm.absence else MISSING,
        ratio_cell(arm.ratio_to_reference),
        Cell(rounded_text("seconds", cpu_s), cpu_s),
        ratio_cell(arm.cpu_ratio_to_reference),
        Cell(notation.size(size), size),
        Cell(lacks or notation.NOTHING, lacks),
    )


def _aspects(facts: RunValues) -> Table | None:
    """What is alike between Hudi's table and those of other formats; None without such arms."""
    aspects = facts.run.header.format_likeness
    if not aspects:
        return None
    columns = (
        Column("aspect", "aspect", numeric=False),
        Column("hudi", "this pipeline", numeric=False),
        Column("delta", "Delta Lake", numeric=False),
        Column("iceberg", "Apache Iceberg", numeric=False),
    )
    keys = ("name", "hudi", "delta", "iceberg")
    rows = tuple(
        tuple(Cell(str(one[key]), str(one[key]), header=key == "name") for key in keys)
        for one in aspects
    )
    caption = "What this pipeline and MERGE INTO of other formats do alike, and what not"
    return Table("format-likeness", caption, columns, rows, sortable=False)


def _sessions(facts: RunValues) -> Table | None:
    """The session of each arm with its serializer and extensions; None if all arms share one."""
    header = facts.run.header
    rows = []
    for session in header.settings.get("sessions") or ():
        # an arm without settings of its own has those of the run
        conf = dict(session["settings"]) or {
            key: header.spark_conf[key]
            for key in (_SERIALIZER, _EXTENSIONS)
            if key in header.spark_conf
        }
        texts = (
            notation.listed(session["arms"]),
            conf.pop(_SERIALIZER, _DEFAULT_SERIALIZER),
            conf.pop(_EXTENSIONS, "none"),
            ", ".join(session.get("jars", ())) or "none",
            ", ".join(f"{key}={value}" for key, value in conf.items()) or "none",
        )
        rows.append(tuple(Cell(text, text, header=text is texts[0]) for text in texts))
    if not rows:
        return None
    caption = "The Spark sessions: arms that share one, and what its settings are"
    return Table("sessions", caption, _SESSION_COLUMNS, tuple(rows), sortable=False)
