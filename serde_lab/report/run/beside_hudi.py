"""Sets a run beside Apache Hudi and RFC-84: ratios, steps, options, published claims.

Also shows how fair the comparison is: what is alike, what differs, and what each strategy gets for free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serde_lab.analysis.arm_ratios import HudiSteps
from serde_lab.analysis.ratios import Ratio
from serde_lab.analysis.rfc84 import (
    MERGED_SOURCE,
    PROTOTYPE_GB,
    PROTOTYPE_ROWS,
    RFC_SOURCE,
    SOURCE,
    VERDICT_RULE,
    Claim,
    percentage,
    rounds_said,
)
from serde_lab.analysis.run_values import RunValues
from serde_lab.report import notation
from serde_lab.report.page import (
    MISSING,
    Block,
    Card,
    Cards,
    Cell,
    Column,
    Section,
    Sentence,
    Table,
    Tone,
    ratio_cell,
    text_columns,
)
from serde_lab.report.run.ways_of_upserting import likeness_table, table_files

_FACETS = (
    ("schema_known", "Schema"),
    ("copies", "Copies"),
    ("batching", "Batching"),
    ("trust", "Trust"),
    ("notes", "Notes"),
)


def peers_section(facts: RunValues) -> Section | None:
    """The ratios; None for a run without peers."""
    peers = [arm for arm in facts.arms if arm.kind == "peer"]
    if not peers:
        return None
    blocks: list[Block] = [
        Sentence(f"{notation.named(arm.name)} is missing: {arm.summary['missing']}", "warn")
        for arm in peers
        if arm.summary["status"] == "missing"
    ]
    ratios = facts.derived.peer_ratios
    if ratios:
        commits = max(len(one.commits) for one in ratios)
        with_cpu = any(one.cpu is not None for one in ratios)
        columns = (
            *text_columns("arm", "against"),
            *(Column(f"commit_{n}", f"commit {n}") for n in range(1, commits + 1)),
            Column("geometric_mean", "geometric mean"),
            Column("95_%_interval", "95 % interval"),
            *((Column("by_cpu", "by CPU of all commits"),) if with_cpu else ()),
        )
        rows = tuple(
            (
                Cell(one.arm, one.arm, header=True),
                Cell(one.against, one.against),
                *(ratio_cell(ratio, with_doubt=False) for ratio in one.commits),
                Cell(one.mean.text, one.mean.value),
                Cell(one.mean.finding or notation.NOTHING, one.mean.range),
                *((ratio_cell(one.cpu),) if with_cpu else ()),
            )
            for one in ratios
        )
        caption = (
            "How many times faster, by commit: the other\u2019s seconds over the arm\u2019s, geometric"
            " means over rounds with 95 % intervals"
        )
        if with_cpu:
            caption += (
                "; by CPU: the same of the CPU time of all processes, summed over all commits"
            )
        blocks.append(Table("times-faster", caption, columns, rows))
    if facts.derived.hudi_steps is not None:
        blocks += steps_blocks(facts.derived.hudi_steps)
    isolated = bool(facts.run.header.settings.get("isolate_peers"))
    several = bool(facts.run.header.settings.get("sessions"))
    said = _ISOLATED if isolated else _SEVERAL if several else _SHARED
    note = Sentence(said, "muted")
    return Section.of("peers", "Beside Apache Hudi", *blocks, _options_table(facts), note)


def steps_blocks(found: HudiSteps) -> tuple[Block, ...]:
    """The sentence that says which step gives how much of the whole, and its table.

    A whole that is not shown to be above 1 has no parts to speak of: its shares are of next to nothing.
    """
    whole = found.whole
    names = notation.named(whole.arm), notation.named(whole.against)
    faster = whole.ratio.value > 1 and (whole.ratio.decided or not whole.ratio.range)
    if faster:
        parts = (
            f"{one.share.percent} ({one.share.range or 'no interval'}) is {one.name} ({_times(one.ratio)})"
            for one in found.steps
        )
        once = "" if whole.ratio.rounds > 1 else " in the one round"
        text = (
            f"{names[0]} is faster than {names[1]}{once}: {_times(whole.ratio)}. Of this factor, on a"
            f" logarithmic scale, {', '.join(parts)}."
        )
    else:
        text = f"{names[0]} is not shown to be faster than {names[1]}: {_times(whole.ratio)}."
    columns = (
        *text_columns("step", "arm", "against"),
        Column("times", "times faster"),
        Column("interval", "95 % interval"),
        Column("share", "share of the factor", about="on a logarithmic scale"),
        Column("about", "what changes", numeric=False),
    )
    rows = tuple(
        (
            Cell(one.name, one.name, header=True),
            Cell(one.arm, one.arm),
            Cell(one.against, one.against),
            Cell(one.ratio.text, one.ratio.value),
            Cell(one.ratio.range or notation.NOTHING, one.ratio.range),
            Cell(one.share.percent, one.share.value, note=one.share.range) if faster else MISSING,
            Cell(one.about or "all of these", one.about),
        )
        for one in (*found.steps, whole)
    )
    caption = "Which step from the peer to the strategy gives how much of the factor"
    return (Sentence(text), Table("hudi-steps", caption, columns, rows, sortable=False))


def _times(ratio: Ratio) -> str:
    return f"{ratio.text} times" + (f", {ratio.range}" if ratio.range else "")


def _options_table(facts: RunValues) -> Table | None:
    """Every option of the first commit, with the arms that were handed it; None for an older run."""
    handed: dict[str, Mapping[str, str]] = dict(
        facts.run.header.settings.get("write_options") or {}
    )
    if not handed:
        return None
    peers = [entry for entry in facts.run.header.arms if entry.kind == "peer" and entry.options]
    handed |= {entry.arm: entry.options for entry in peers}
    arms_of: dict[tuple[str, str], list[str]] = {}
    for arm, options in handed.items():
        for option, value in options.items():
            arms_of.setdefault((option, value), []).append(arm)
    rows = []
    for (option, value), arms in sorted(arms_of.items(), key=lambda one: (-len(one[1]), one[0])):
        to = "all" if len(arms) == len(handed) else ", ".join(arms)
        rows.append((Cell(option, option, header=True), Cell(value, value), Cell(to, to)))
    same = sum(len(arms) == len(handed) for arms in arms_of.values())
    columns = (
        *text_columns("option", "value"),
        Column("handed_to", "handed to", numeric=False),
    )
    caption = (
        "Options that the lab and Apache Hudi were handed for the first commit,"
        f" {same} of them the same for all arms"
    )
    return Table("write-options", caption, columns, tuple(rows), folded=caption)


_SHARED = (
    "All arms ran in one Spark session, in turns, with the settings that Apache Hudi needs; a run with"
    " --isolate-peers shows the effect of sharing it. Garbage is collected before each cell, outside the"
    " clock."
)
_SEVERAL = (
    "Arms whose settings of Spark differ ran in processes and Spark sessions of their own, all with the"
    " settings that Apache Hudi needs, except those that write another table format. One cell ran at a time,"
    " with rounds interleaved between the sessions. Garbage is collected before each cell, outside the clock."
)
_ISOLATED = (
    "The peers ran in a process and a Spark session of their own, beside that of the other arms, which had"
    " none of Apache Hudi\u2019s settings. One cell ran at a time, with rounds interleaved between the two."
    " Garbage is collected before each cell, outside the clock."
)


def fairness_section(facts: RunValues) -> Section | None:
    """One card per strategy: what it gets for free, or is denied."""
    cards: dict[str, Card] = {}
    for arm in facts.arms:
        fairness = arm.summary["fairness"]
        if isinstance(fairness, Mapping) and arm.strategy not in cards:
            users = [a.name for a in facts.arms if a.strategy == arm.strategy]
            of = f"arms {notation.listed(users)}" if len(users) > 1 else ""
            cards[arm.strategy] = Card(arm.strategy, _facets(fairness), of)
    lead = (
        "What each strategy gets for free and what it has to do without, as its author states it."
    )
    stated = (Sentence(lead), Cards(tuple(cards.values()))) if cards else ()
    section = Section.of(
        "fairness", "Fairness", *stated, likeness_table(facts), *table_files(facts)
    )
    return section if section.blocks else None


def _facets(fairness: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    known = [(label, fairness[key]) for key, label in _FACETS if fairness.get(key)]
    listed = {key for key, _ in _FACETS}
    others = [
        (key.replace("_", " "), value) for key, value in fairness.items() if key not in listed
    ]
    return tuple((label, str(value)) for label, value in (*known, *others))


_NOT_ALIKE = (
    "What differs: the RFC's prototype ran on Flink, where Avro records went through Kryo one by one; here"
    " all arms are Python beside Spark, row by row or by column, and Avro carries a fingerprint of its"
    " schema, not the schema. Compare the signs and the order of the figures rather than their sizes."
)


def rfc84_section(facts: RunValues) -> Section | None:
    """The section, or None for other workloads."""
    found = facts.derived.claims
    if not found:
        return None
    settings = facts.run.header.settings
    rows = sum(int(n) for n in (settings.get("rows") or {}).values())
    keys = sum(int(n or 0) for n in (settings.get("different_keys") or {}).values())
    lead = (
        f"{notation.count(rows)} rows with {notation.count(keys)} different keys;"
        f" {rounds_said(facts.summary)}. The column RFC-84 quotes {RFC_SOURCE} The column merged quotes"
        f" {MERGED_SOURCE}. The column prototype quotes {SOURCE}."
    )
    single = rounds_said(facts.summary) == "a single sample"
    columns = (
        Column("quantity", "quantity", numeric=False),
        Column("pair", "both arms", numeric=False),
        Column("before", "avro"),
        Column("after", "internal_row"),
        Column("change", "change"),
        Column("rfc", "RFC-84", numeric=False),
        Column("merged", "merged", numeric=False, about=MERGED_SOURCE),
        Column("rfc_change", "prototype", about=SOURCE),
        Column("verdict", "verdict", numeric=False, about=VERDICT_RULE),
    )
    table = Table(
        "rfc84",
        "The typed row beside Avro: here, in RFC-84's text, and in its prototype",
        columns,
        tuple(claim_cells(claim) for claim in found),
        sortable=False,
    )
    blocks: tuple[Block, ...] = (
        Sentence(lead, "warn" if single else ""),
        table,
        Sentence(VERDICT_RULE, "muted"),
        *_why_more_bytes(found, rows),
        Sentence(_NOT_ALIKE, "muted"),
    )
    return Section("rfc84", "Beside RFC-84", blocks)


def _why_more_bytes(found: Sequence[Claim], rows: int) -> tuple[Sentence, ...]:
    """Why bytes contradict the prototype: what a record took there and takes here."""
    claim = next((one for one in found if one.unit == "MB"), None)
    if claim is None or claim.verdict != "contradicts" or not rows:
        return ()
    before, after = (1e6 * value / rows for value in (claim.before, claim.after))
    there = [notation.number(1e9 * gigabytes / PROTOTYPE_ROWS) for gigabytes in PROTOTYPE_GB]
    text = (
        f"Bytes contradict, since Avro starts from less: a record takes {notation.number(before)} B here and"
        f" took {there[0]} B in the prototype, whose Avro records went through Kryo. The typed row takes"
        f" {notation.number(after)} B here and took {there[1]} B there. Beside Avro's varints, it writes"
        " numbers at fixed width and lengths in 4 bytes; the envelopes differ by 2 bytes."
    )
    return (Sentence(text, "warn"),)


def claim_cells(claim: Claim) -> tuple[Cell, ...]:
    """A quantity here, in the RFC's text and in its prototype, and the verdict."""
    if claim.unit == "MB":
        before, after = (notation.size(value * 1e6) for value in (claim.before, claim.after))
    else:
        before, after = (notation.seconds(value) for value in (claim.before, claim.after))
    interval = ""
    if claim.shown is not None and claim.low != claim.high:
        low, high = claim.shown
        interval = f"{percentage(low)} to {percentage(high)}"
    tones: dict[str, Tone] = {"agrees": "good", "contradicts": "warn"}
    return (
        Cell(claim.quantity, claim.quantity, header=True),
        Cell(claim.pair, claim.pair),
        Cell(before, claim.before),
        Cell(after, claim.after),
        Cell(percentage(claim.change), claim.change, note=interval),
        Cell(claim.promised, claim.rfc_most),
        Cell(claim.said_when_merged, claim.merged),
        Cell(claim.said_of_prototype, claim.rfc_change),
        Cell(
            claim.verdict, claim.verdict, note=claim.doubt, tone=tones.get(claim.verdict, "muted")
        ),
    )
