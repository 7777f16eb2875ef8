"""Measures the cost of each verb of the record API per strategy, and RFC-84's nested layout beside the flat.

    python -m tests.lab.record_api [--rows 20000] [--repeats 7] [--format md|json]
    python -m tests.lab.record_api --document serde_lab/serde/RECORD_API.md

Records are like lineitem's: 16 columns, a key of 28 letters, a file id of 38, decoded from frames.
Figures are microseconds of CPU time of this process per record, the minimum of all repeats, on one core.
`--document` remakes the tables between that document's marks, so that no figure is typed by hand. A
strategy's class says which verbs leave its representation (`verbs_through_arrow`). For regressions and
claims the lab's runs count, not these figures.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from serde_lab.errors import UsageError
from serde_lab.lab.cells.codec_cases import batch_of, values_of
from serde_lab.lab.cells.codec_cells import least, measure_verbs
from serde_lab.lab.cells.verb_times import VERBS
from serde_lab.merging.rules import DeleteMarkers
from serde_lab.records.schema import ENVELOPE, RecordSchema
from serde_lab.serde import registry
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Execution,
    Records,
    SerdeOptions,
    verbs_through_arrow,
)
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import MetadataValues

_KINDS = (*["int64"] * 3, "int32", *["decimal"] * 4, *["string"] * 5, *["date"] * 3)

MEANING: Mapping[str, str] = {
    "record_keys": "the record keys (`getRecordKey`)",
    "partition_paths": "the partition paths (`getPartitionPath`)",
    "column_values": "columns by name (`getColumnValues`); here a long and a text",
    "ordering_values": "the ordering fields (`getOrderingValue`); here a date",
    "current_locations": "file id and instant where records are stored (`getCurrentLocation`)",
    "new_locations": "file id and instant where a write puts them (`getNewLocation`)",
    "is_delete": "operation D or -U, `_hoodie_is_deleted`, a marker of the user's (`isDelete`); "
    "here a marker",
    "should_ignore": "index records, which a write passes over (`shouldIgnore`)",
    "update_metadata": "set file id, instant time, operation (`updateMetadataValues`, RFC-84's setters)",
    "rewrite": "to another schema: renames, promotions, defaults "
    "(`rewriteRecord`, `rewriteRecordWithNewSchema`); here one column renamed, one promoted, one new, "
    "one left out",
    "join": "with another record's columns (`joinWith`); here 8 and 8",
    "take": "some of them, in any order; here all, shuffled",
    "concatenate": "all of several; here of two halves",
    "copy": "frames to other targets, undecoded (RFC-84's `copy(source, target)`)",
}
"""Every verb and its meaning; the methods of RFC-46 and RFC-84 in parentheses."""

BESIDE: Mapping[str, str] = {
    "rewrite, through Arrow": "what `rewrite` would cost by converting out and in",
    "decode and encode": "what `copy` saves",
}
"""Further measurements to compare the verbs with."""

ALL_OWN = "all"


@dataclass(frozen=True, slots=True)
class VerbCost:
    """Microseconds per record of one verb."""

    strategy: str
    execution: str
    verb: str
    us: float
    through_arrow: bool


@dataclass(frozen=True, slots=True)
class LayoutCost:
    """The four verbs of `internal_row` in one layout, microseconds and bytes per record."""

    layout: str
    execution: str
    bytes: float
    verb_us: Mapping[str, float]
    update_metadata_us: float

    @property
    def us(self) -> float:
        """The sum of the four verbs."""
        return sum(self.verb_us.values())


def arms() -> list[tuple[str, Execution]]:
    """Every strategy with each of its executions."""
    return [(n, e) for n in registry.BUILT_IN for e in registry.strategy(n).executions]


def _case(rows: int) -> tuple[RecordSchema, pa.RecordBatch]:
    schema, batch = batch_of([values_of(k, rows, i) for i, k in enumerate(_KINDS)], rows)
    return RecordSchema(schema.data, schema.record_key, ordering=("c13",)), batch


def _bind(name: str, execution: Execution, schema: RecordSchema, **own: object) -> BoundSerde:
    rows_per_frame = registry.strategy(name).default_rows_per_frame
    return registry.bind(name, schema, SerdeOptions(execution, rows_per_frame, own=own))


def verb_costs(name: str, execution: Execution, rows: int, repeats: int) -> list[VerbCost]:
    """The cost of every verb, and of the measurements beside them."""
    schema, batch = _case(rows)
    bound = _bind(name, execution, schema)
    frames = bound.encode(bound.from_arrow(batch), Bounds.single(rows))
    records = bound.decode(frames.frame)
    target = _bind(name, execution, _target(schema))
    left, right = _halves(name, execution, schema, batch)
    order = np.random.default_rng(1).permutation(rows)
    parts = [records.take(half) for half in (np.arange(rows // 2), np.arange(rows // 2, rows))]
    metadata = MetadataValues("00000007-5c2f-4a6b-9d1e-0123456789ab-0", "U", "+U")
    targets = np.zeros(len(frames), np.int32)
    rule = DeleteMarkers("c8", "delete")
    renames, defaults = {"renamed": "c12"}, {"new": "a default"}
    plan = Projection.rewriting(schema, target.schema, renames, defaults)
    acts: dict[str, Callable[[], object]] = {
        "record_keys": records.record_keys,
        "partition_paths": records.partition_paths,
        "column_values": lambda: records.column_values(["c1", "c9"]),
        "ordering_values": records.ordering_values,
        "current_locations": records.current_locations,
        "new_locations": lambda: records.new_locations("20240102030405678"),
        "is_delete": lambda: records.is_delete(rule),
        "should_ignore": records.should_ignore,
        "update_metadata": lambda: bound.update_metadata(records, metadata),
        "rewrite": lambda: target.rewrite(records, renames, defaults),
        "join": lambda: bound.join(left, right),
        "take": lambda: records.take(order),
        "concatenate": lambda: type(records).concatenate(parts),
        "copy": lambda: bound.copy(frames, targets),
        "rewrite, through Arrow": lambda: BoundSerde.project(target, plan, [records]),
        "decode and encode": lambda: bound.encode(bound.decode(frames.frame), Bounds.single(rows)),
    }
    away = verbs_through_arrow(bound)
    return [
        VerbCost(name, execution, verb, _least_us(act, rows, repeats), verb in away)
        for verb, act in acts.items()
    ]


def _target(schema: RecordSchema) -> RecordSchema:
    fields = [f for f in schema.data if f.name not in ("c0", "c12", "c3")]
    fields += [
        pa.field("renamed", schema.data.field("c12").type),
        pa.field("c3", pa.int64()),
        pa.field("new", pa.string()),
    ]
    return RecordSchema(pa.schema(fields), record_key=("c1",))


def _halves(
    name: str, execution: Execution, schema: RecordSchema, batch: pa.RecordBatch
) -> list[Records]:
    found = []
    for names in (schema.data.names[:8], schema.data.names[8:]):
        half = RecordSchema(pa.schema([schema.data.field(n) for n in names]), (names[0],))
        part = batch.select([*ENVELOPE.names, *names])
        bound = _bind(name, execution, half)
        frames = bound.encode(bound.from_arrow(part), Bounds.single(len(batch)))
        found.append(bound.decode(frames.frame))
    return found


def _least_us(act: Callable[[], object], rows: int, repeats: int) -> float:
    """The minimum of all repeats, in microseconds of CPU per record."""
    found = least(lambda: None, lambda _: act(), loops=repeats, most_ns=float("inf"))
    return found.cpu_ns / rows / 1000


def layout_costs(execution: Execution, rows: int, repeats: int) -> list[LayoutCost]:
    """The flat and the nested layout, measured in turn so that neither gets the quieter moments."""
    schema, batch = _case(rows)
    layouts = ("flat", "nested")
    bound = {one: _bind("internal_row", execution, schema, layout=one) for one in layouts}
    verb_us = {one: dict.fromkeys(VERBS, float("inf")) for one in layouts}
    frame_bytes = dict.fromkeys(layouts, 0)
    for repeat in range(repeats):
        for one in layouts if repeat % 2 else layouts[::-1]:
            times, frame_bytes[one] = measure_verbs(bound[one], batch)
            for verb, found in times.items():
                verb_us[one][verb] = min(verb_us[one][verb], found.cpu_ns / rows / 1000)
    metadata = MetadataValues(file_id="00000007-5c2f-4a6b-9d1e-0123456789ab-0")
    costs = []
    for one in layouts:
        sent = bound[one].encode(bound[one].from_arrow(batch), Bounds.single(rows))
        records = bound[one].decode(sent.frame)
        update = partial(bound[one].update_metadata, records, metadata)
        update_us = _least_us(update, rows, repeats)
        size = frame_bytes[one] / rows
        costs.append(LayoutCost(one, execution, size, verb_us[one], update_us))
    return costs


def verb_table(costs: Sequence[VerbCost]) -> str:
    """One line per verb: meaning, which strategies do it natively, µs per record of each arm."""
    arms = list(dict.fromkeys((c.strategy, c.execution) for c in costs))
    found = {(c.strategy, c.execution, c.verb): c for c in costs}
    heads = ["verb", "meaning", "on its own representation", *(f"{n} ({e})" for n, e in arms)]
    lines = [heads, ["---", "---", "---", *["---:"] * len(arms)]]
    for verb, meaning in {**MEANING, **BESIDE}.items():
        cells = [found[(*arm, verb)] for arm in arms]
        own = list(dict.fromkeys(c.strategy for c in cells if not c.through_arrow))
        names = list(dict.fromkeys(c.strategy for c in cells))
        who = ALL_OWN if own == names else ", ".join(own) or "none"
        if verb in BESIDE:
            who = ""
        lines.append([f"`{verb}`" if verb in MEANING else verb, meaning, who, *map(_us, cells)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _us(cost: VerbCost) -> str:
    if cost.us < 0.0005:
        return "< 0.001"
    return f"{cost.us:.2f}" if cost.us >= 0.1 else f"{cost.us:.3f}"


def layout_table(costs: Sequence[LayoutCost]) -> str:
    """The nested layout beside the flat one, for each execution."""
    heads = ["execution", "layout", "bytes a record", *VERBS, "together", "update_metadata"]
    lines = [heads, ["---", "---", *["---:"] * (len(heads) - 2)]]
    for cost in costs:
        flat = next(c for c in costs if (c.layout, c.execution) == ("flat", cost.execution))
        more = "" if cost is flat else f" ({cost.us / flat.us - 1:+.0%})"
        larger = "" if cost is flat else f" ({cost.bytes / flat.bytes - 1:+.0%})"
        verbs = [f"{cost.verb_us[v]:.3f}" for v in VERBS]
        together = f"{cost.us:.3f}{more}"
        size = f"{cost.bytes:.1f}{larger}"
        line = [cost.execution, cost.layout, size, *verbs, together]
        lines.append([*line, f"{cost.update_metadata_us:.3f}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def origin(rows: int, repeats: int) -> str:
    """A sentence that says how and where the figures were measured."""
    return (
        f"µs of CPU a record, the least of {repeats} times, {rows:,} records like lineitem's, one core of"
        f" {platform.machine()}, Python {platform.python_version()}, pyarrow {pa.__version__}.\n"
    )


def redone(text: str, tables: Mapping[str, str]) -> str:
    """The text of a document with the tables between its marks replaced.

    Raises UsageError naming a mark that is missing.
    """
    for name, table in tables.items():
        mark = re.compile(rf"<!-- record_api: {name} -->\n.*?<!-- end -->", re.DOTALL)
        if not mark.search(text):
            raise UsageError(f"the document has no mark '<!-- record_api: {name} -->'")
        before, after = mark.split(text)[0], mark.split(text)[-1]
        text = f"{before}<!-- record_api: {name} -->\n\n{table}\n<!-- end -->{after}"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.record_api")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--format", choices=["md", "json"], default="md")
    parser.add_argument("--document", type=Path, help="remake the tables of this document")
    chosen = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    costs: list[VerbCost] = []
    for name, execution in arms():
        costs += verb_costs(name, execution, chosen.rows, chosen.repeats)
    layouts: list[LayoutCost] = []
    for execution in registry.strategy("internal_row").executions:
        layouts += layout_costs(execution, chosen.rows, chosen.repeats)
    tables = {
        "verbs": verb_table(costs),
        "layouts": layout_table(layouts),
        "origin": origin(chosen.rows, chosen.repeats),
    }
    if chosen.document is not None:
        text = chosen.document.read_text(encoding="utf-8")
        chosen.document.write_text(redone(text, tables), encoding="utf-8")
    elif chosen.format == "json":
        content = {"verbs": [asdict(c) for c in costs], "layouts": [asdict(c) for c in layouts]}
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        sys.stdout.write("\n".join(tables.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
