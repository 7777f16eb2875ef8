"""Shows what each way of upserting costs and does not give, and what is alike between it and Apache Hudi's.

Ways are Hudi tables and tables without Hudi. The figures of files are facts of the check `files_alike`, which
reads the files themselves. A pair whose files differ is shown as differing, with the bytes of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from serde_lab.analysis.arm_ratios import PeerRatio
from serde_lab.analysis.rounding import text as rounded_text
from serde_lab.analysis.run_values import ArmValues, RunValues
from serde_lab.peers.likeness import FILES_ALIKE, in_streams
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

Facts = Mapping[str, int | str]

_TONES = {"ours": "good", "peer": "warn"}

_ALIKE_WITHIN = 0.01
"""Byte counts that differ by less are alike: compressed sizes vary a little with the order of rows."""
_ASPECTS = (
    ("codec", "codec"),
    ("log_blocks", "log blocks"),
    ("log_bytes", "log files"),
    ("base_bytes", "base files"),
    ("row_groups", "row groups"),
    ("bloom_bytes", "Bloom filters"),
    ("key_ranges", "key ranges"),
    ("statistics", "columns with statistics"),
)


def likeness_table(facts: RunValues) -> Table | None:
    """What is alike and what differs, with a figure for each difference; None for a run without peers."""
    aspects: Sequence[Mapping[str, Any]] = facts.run.header.likeness
    if not aspects:
        return None
    if facts.content.get("stream"):
        aspects = in_streams(aspects)
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
        tuple(_likeness_row(one, facts) for one in aspects),
        sortable=False,
    )


def _likeness_row(aspect: Mapping[str, Any], facts: RunValues) -> tuple[Cell, ...]:
    name, more = str(aspect["name"]), str(aspect["more"])
    measured = "; ".join(_measured(aspect, facts.arms, facts.derived.peer_ratios))
    return (
        Cell(name, name, header=True),
        Cell(str(aspect["ours"]), str(aspect["ours"])),
        Cell(str(aspect["peer"]), str(aspect["peer"])),
        Cell(str(aspect["verdict"]), more, tone=_TONES.get(more, "")),  # type: ignore[arg-type]
        Cell(measured or notation.NOTHING, measured),
    )


def _measured(
    aspect: Mapping[str, Any], arms: Sequence[ArmValues], ratios: Sequence[PeerRatio]
) -> Iterable[str]:
    """The aspect's figures; arms with the same text are listed together."""
    for metric in aspect.get("metrics", ()):
        said: dict[str, list[str]] = {}
        for arm in arms:
            value = _figure(arm, metric)
            if value is not None:
                said.setdefault(notation.of_metric(metric, value), []).append(arm.name)
        label = metric.rpartition(".")[2].replace("_", " ")
        if len(said) == 1:
            yield f"{label}: {next(iter(said))} in every arm"
        elif said:
            yield f"{label}: " + ", ".join(
                f"{text} in {notation.listed(names)}" for text, names in said.items()
            )
        if metric == "tree_cpu_s":
            yield from _cpu_ratios(ratios)
    if aspect.get("shown_in"):
        yield f"the check {aspect['shown_in']} shows it for each table"


def _cpu_ratios(ratios: Sequence[PeerRatio]) -> Iterable[str]:
    """How many times the CPU of all processes the peers take, beside the ratio by seconds."""
    for one in ratios:
        if one.cpu is not None:
            yield (
                f"{one.against} over {one.arm}: {one.cpu.text} by CPU ({one.cpu.range}),"
                f" {one.mean.text} by seconds ({one.mean.range})"
            )


def _figure(arm: ArmValues, metric: str) -> float | None:
    group, _, name = metric.rpartition(".")
    if not group:
        return arm.figure(metric)
    return (arm.summary[group] or {}).get(name)


def table_files(facts: RunValues) -> tuple[Table, ...]:
    """The files of each arm, and the pairs of our arms and peers; nothing for a run without such facts."""
    found = {
        check.arm: check.facts
        for check in facts.run.checks
        if check.name == FILES_ALIKE and check.facts
    }
    arms = [arm for arm in facts.arms if arm.name in found]
    if not arms:
        return ()
    heading = Column("arm", "arm", numeric=False)
    columns = (heading, *(Column(key, words, numeric=False) for key, words in _ASPECTS))
    each = Table(
        "table-files",
        "What the files of each arm's table hold, read from the files themselves",
        columns,
        tuple((Cell(arm.name, arm.name, header=True), *_cells(found[arm.name])) for arm in arms),
        folded="What the files of each arm's table hold",
    )
    pairs = tuple(_pairs(arms, found))
    if not pairs:
        return (each,)
    between = Table(
        "file-pairs",
        "Whether the files of an arm and of Apache Hudi are alike; where they differ, first those of the arm",
        (
            heading,
            Column("peer", "Apache Hudi", numeric=False),
            Column("verdict", "files", numeric=False),
            Column("differences", "what differs", numeric=False),
        ),
        pairs,
    )
    return each, between


def _cells(facts: Facts) -> Iterator[Cell]:
    for key, _ in _ASPECTS:
        yield Cell(_text(key, facts), facts.get(key))


def _text(key: str, facts: Facts) -> str:
    value = facts.get(key)
    if value is None:
        return notation.NOTHING
    if isinstance(value, str):
        return value
    if not key.endswith("_bytes"):
        return notation.count(value)
    return notation.size(value) if value else "none"


def _pairs(arms: list[ArmValues], found: Mapping[str | None, Facts]) -> Iterator[tuple[Cell, ...]]:
    """One row for each of our arms and each peer that writes the same kind of table; arms that differ from a
    peer in the same way share a row."""
    for peer in (arm for arm in arms if arm.kind == "peer"):
        alike: dict[str, list[str]] = {}
        for arm in arms:
            if arm.kind != "peer" and arm.summary.get("table") == peer.summary.get("table"):
                said = "; ".join(_differences(found[arm.name], found[peer.name]))
                alike.setdefault(said, []).append(arm.name)
        for said, names in alike.items():
            listed = notation.listed(names)
            verdict = Cell("differ", "differ", tone="warn") if said else Cell("alike", "alike")
            yield (
                Cell(listed, listed, header=True),
                Cell(peer.name, peer.name),
                verdict,
                Cell(said or notation.NOTHING, said),
            )


def _differences(ours: Facts, theirs: Facts) -> Iterator[str]:
    for key, words in _ASPECTS:
        if _differ(ours.get(key), theirs.get(key)):
            yield f"{words} {_text(key, ours)} and {_text(key, theirs)}"


def _differ(one: int | str | None, other: int | str | None) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return abs(one - other) > _ALIKE_WITHIN * max(one, other)
    return one != other


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
            Sentence(
                f"What {table} {'does' if table.startswith('a') else 'do'} not give:"
                f" {notation.listed(found)}."
            )
            for table, found in lacks
        ),
    )


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
        tuple(
            Cell(text := str(one.get(key, "not stated")), text, header=key == "name")
            for key in keys
        )
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
