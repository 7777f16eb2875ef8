"""Shows what a record costs each strategy alone, by batch size, column type and table width.

`codec_costs` computes the figures of a codec run.
"""

from __future__ import annotations

from collections.abc import Sequence

from serde_lab.analysis.codec_costs import (
    VERBS,
    CodecCost,
    by_type,
    by_width,
    records_of,
    usual_rows,
)
from serde_lab.analysis.run_values import RunValues
from serde_lab.report import notation
from serde_lab.report.page import (
    MISSING,
    Block,
    Cell,
    Column,
    Figure,
    Section,
    Sentence,
    Table,
    text_columns,
)
from serde_lab.report.plots.drawings import Lines, lines_of

_LEAD = (
    "CPU time of one thread: the fastest of a few loops of each verb in each round, then the median over"
    " rounds. Writing is from_arrow and encode, reading is decode and to_arrow: each is the median of the"
    " rounds' sums. A strategy may do its work in either of the two verbs, so compare only the sums between"
    " strategies."
)
_IN_THE_JVM = (
    "Arms hudi_* are Apache Hudi's own record classes in the JVM, through Spark's Kryo serialiser. There,"
    " from_arrow is from Spark's rows to Hudi's records, with their keys; encode and decode are Kryo;"
    " to_arrow ends where Hudi's file writer begins, with a decoded Avro record or with Spark's row. CPU is"
    " that of the thread that runs the loop, without the JVM's collector and compiler, as Python's collector"
    " rests too."
)


def codec_section(facts: RunValues) -> Section | None:
    """The section, or None if it is no codec run or has no trustworthy figures."""
    costs = facts.derived.codec_costs
    if not costs:
        return None
    blocks: list[Block] = [Sentence(_LEAD, "muted")]
    missing = {arm.name: arm.summary["missing"] for arm in facts.arms if arm.kind == "peer"}
    blocks += [
        Sentence(f"{notation.named(name)} is missing: {why}", "warn")
        for name, why in missing.items()
        if why
    ]
    if missing:
        blocks.append(Sentence(_IN_THE_JVM, "muted"))
    records = sorted(records_of(costs), key=lambda cost: (cost.rows, cost.arm))
    if len({cost.rows for cost in records}) > 1:
        blocks.append(_figure(records))
    if records:
        blocks.append(record_table(records))
    if any(cost.group == "type" for cost in costs):
        blocks += [type_table(costs), _all_types(costs)]
    if by_width(costs):
        blocks.append(width_table(costs))
    return Section("codec", "What a record costs", tuple(blocks))


def codec_headline(facts: RunValues) -> tuple[str, str, tuple[Sentence, ...]] | None:
    """The cheapest strategy in batches of the usual size; None for other runs."""
    records = records_of(facts.derived.codec_costs)
    if not records:
        return None
    rows = max((c.rows for c in records if c.rows <= 10_000), default=records[0].rows)
    ranked = sorted((c for c in records if c.rows == rows), key=lambda cost: cost.both_us)
    best, costs = ranked[0], []
    for cost in ranked:
        costs.append(
            f"{notation.named(cost.arm)} {_us(cost.write_us)} to write and {_us(cost.read_us)} to"
            f" read, {notation.number(cost.bytes)} B"
        )
    about = (
        f"CPU per record for all four verbs of {notation.named(best.arm)}, the lowest of all arms, in"
        f" batches of {notation.count(rows)}"
    )
    return _us(best.both_us), about, (Sentence(f"Cost of a record: {'; '.join(costs)}."),)


def _us(value: float) -> str:
    return f"{notation.number(value)} µs"


def _figure(records: Sequence[CodecCost]) -> Figure:
    arms = list(dict.fromkeys(cost.arm for cost in records))
    lines = lines_of(
        {arm: [(float(c.rows), c.both_us) for c in records if c.arm == arm] for arm in arms}
    )
    ends = (
        f"{line.label} {_us(line.points[0][1])} for one record and {_us(line.points[-1][1])} in the largest"
        " batch"
        for line in lines
    )
    return Figure(
        name="codec-records",
        title="CPU per record by batch size",
        description=f"Lines, both axes logarithmic: {'; '.join(ends)}.",
        drawing=Lines(
            x_axis="records per batch",
            y_axis="µs per record, all four verbs",
            lines=lines,
            logarithmic=True,
            x_logarithmic=True,
        ),
    )


def record_table(records: Sequence[CodecCost]) -> Table:
    """What a record of the scenario's own data costs, by arm and batch size."""
    columns = (
        Column("arm", "arm", numeric=False),
        Column("rows", "records per batch"),
        Column("write_us", "write", unit="µs", about="from_arrow and encode"),
        Column("read_us", "read", unit="µs", about="decode and to_arrow"),
        Column("both_us", "both", unit="µs"),
        *(Column(f"{verb}_us", verb, unit="µs") for verb in VERBS),
        Column("bytes", "bytes"),
    )
    rows = tuple(
        (
            Cell(cost.arm, cost.arm, header=True),
            Cell(notation.count(cost.rows), cost.rows),
            *(_time(t) for t in (cost.write_us, cost.read_us, cost.both_us)),
            *(_time(cost.verbs_us[verb]) for verb in VERBS),
            Cell(f"{cost.bytes:.1f}", cost.bytes),
        )
        for cost in records
    )
    return Table("codec-record-costs", "A record of the scenario's data", columns, rows)


def type_table(costs: Sequence[CodecCost]) -> Table:
    """What a value of each type costs each arm, in batches of the pipeline's size."""
    batch = usual_rows(costs)
    types = by_type(costs, batch)
    arms = list(dict.fromkeys(arm for of in types.values() for arm in of))
    columns = (
        Column("type", "type", numeric=False),
        *(Column(f"{arm}_us", arm, unit="µs, bytes") for arm in arms),
    )
    rows = tuple(
        (Cell(kind, kind, header=True), *(_value(of.get(arm)) for arm in arms))
        for kind, of in types.items()
    )
    caption = (
        f"A value of each type, all four verbs, in batches of {notation.count(batch)}: an eighth of"
        " what eight such columns add to a record"
    )
    return Table("codec-types", caption, columns, rows)


def _all_types(costs: Sequence[CodecCost]) -> Table:
    columns = (
        *text_columns("arm", "type"),
        Column("rows", "records per batch"),
        Column("both_us", "both", unit="µs"),
        *(Column(f"{verb}_us", verb, unit="µs") for verb in VERBS),
        Column("bytes", "bytes"),
    )
    rows = tuple(
        (
            Cell(cost.arm, cost.arm, header=True),
            Cell(cost.type, cost.type),
            Cell(notation.count(cost.rows), cost.rows),
            _time(cost.both_us),
            *(_time(cost.verbs_us[verb]) for verb in VERBS),
            Cell(f"{cost.bytes:.1f}", cost.bytes),
        )
        for cost in costs
        if cost.group == "type"
    )
    caption = "A value of each type, by batch size and verb"
    return Table("codec-all-types", caption, columns, rows, folded="Every type, size and verb")


def width_table(costs: Sequence[CodecCost]) -> Table:
    """What a record of each generated table costs each arm."""
    widths = by_width(costs)
    arms = list(dict.fromkeys(arm for of in widths.values() for arm in of))
    columns = (
        Column("columns", "columns"),
        Column("strings", "strings"),
        *(Column(f"{arm}_us", arm, unit="µs, bytes") for arm in arms),
    )
    rows = tuple(
        (
            Cell(str(width), width, header=True),
            Cell(notation.percent(share), share),
            *(_value(of.get(arm)) for arm in arms),
        )
        for (width, share), of in widths.items()
    )
    caption = (
        "A record of generated tables, all four verbs, by number of columns and share of strings"
    )
    return Table("codec-widths", caption, columns, rows)


def _time(value: float) -> Cell:
    return Cell(f"{value:.3f}", value)


def _value(cost: CodecCost | None) -> Cell:
    if cost is None:
        return MISSING
    return Cell(f"{cost.both_us:.3f}", cost.both_us, f"{cost.bytes:.0f} B")
