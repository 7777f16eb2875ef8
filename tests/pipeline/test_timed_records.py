"""Whatever the pipeline asks of records is timed as SerDe, and gives what the records themselves give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.timed_serde import TimedRecords, TimedSerde
from serde_lab.records.keys import NOWHERE, KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import Bounds, Records, SerdeOptions
from serde_lab.serde.record_verbs import MetadataValues
from serde_lab.serde.registry import BUILT_IN, strategy

SCHEMA = RecordSchema(
    pa.schema([pa.field("k", pa.string()), pa.field("at", pa.int64())]), ("k",), (), ("at",)
)
ROWS = pa.record_batch([["a", "b", "c"], [3, 1, 2]], schema=SCHEMA.data)
BATCH = KeyGenerator(SCHEMA).envelop(ROWS, NOWHERE)

QUESTIONS: dict[str, tuple[str, Callable[[Records], Any]]] = {
    "len": ("read_columns", len),
    "column": ("read_columns", lambda r: r.column("at")),
    "column_values": ("read_columns", lambda r: r.column_values(["k", "at"])),
    "record_keys": ("read_columns", lambda r: r.record_keys()),
    "partition_paths": ("read_columns", lambda r: r.partition_paths()),
    "ordering_values": ("read_columns", lambda r: r.ordering_values()),
    "current_locations": ("read_columns", lambda r: r.current_locations()),
    "new_locations": ("read_columns", lambda r: r.new_locations("1")),
    "is_delete": ("read_columns", lambda r: r.is_delete()),
    "should_ignore": ("read_columns", lambda r: r.should_ignore()),
    "forget_columns": ("read_columns", lambda r: r.forget_columns()),
    "to_arrow": ("to_arrow", lambda r: r.to_arrow()),
    "to_rows": ("to_arrow", lambda r: r.to_rows()),
    "take": ("take", lambda r: r.take(np.array([2, 0]))),
    "slice": ("take", lambda r: r.slice(1, 3)),
    "pieces": ("take", lambda r: list(r.pieces(2))),
    "concatenate": ("take", lambda r: type(r).concatenate([r, r])),
}


def plain(found: Any) -> Any:
    """An answer with records as batches, read behind the timeline's back."""
    if isinstance(found, list):
        return [plain(one) for one in found]
    if isinstance(found, TimedRecords):
        return found.records.to_arrow()
    return found.to_arrow() if isinstance(found, Records) else found


def timed(name: str, timeline: TaskTimeline) -> TimedSerde:
    options = SerdeOptions(rows_per_frame=2)
    return TimedSerde(strategy(name).bind(SCHEMA, options), timeline)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", BUILT_IN)
def test_an_answer_is_the_records_own_and_its_time_is_serde(name: str, question: str) -> None:
    verb, ask = QUESTIONS[question]
    timeline = TaskTimeline("reduce")
    bound = timed(name, timeline)
    frames = bound.encode(bound.from_arrow(BATCH), Bounds.single(3)).frame
    with timeline.phase("merge"):
        found = ask(bound.decode(frames))
    assert plain(found) == plain(ask(bound.bound.decode(frames)))
    phases = timeline.report().phases
    assert phases.keys() == {"merge", verb}
    with timeline.phase("route"):
        ask(bound.decode(frames))
    assert timeline.report().phases[verb].calls == phases[verb].calls


def test_index_records_are_not_timed_and_mix_with_timed_ones() -> None:
    timeline = TaskTimeline("assign")
    bound = timed("arrow", timeline)
    keys, nowhere = pa.array(["a"]), pa.array([""])
    with timeline.phase("index_from_arrow"):
        index = bound.index_records(keys, nowhere, pa.array(["group"]))
        frames = bound.encode(index, Bounds.single(1)).frame
    with timeline.phase("index_decode"):
        arrived = bound.decode(frames)
    with timeline.phase("lookup"):
        assert arrived.record_keys().to_pylist() == ["a"]
    assert timeline.report().phases.keys() == {"index_from_arrow", "index_decode", "lookup"}


def test_verbs_that_make_records_make_timed_ones() -> None:
    timeline = TaskTimeline("assign")
    bound = timed("internal_row", timeline)
    records = bound.from_arrow(BATCH)
    with timeline.phase("update_metadata"):
        placed = bound.update_metadata(records, MetadataValues(file_id="group"))
    assert placed.current_locations().file_id.to_pylist() == ["group"] * 3
    assert bound.rewrite(records).to_arrow() == BATCH
    assert timeline.report().phases.keys() == {"update_metadata", "read_columns", "to_arrow"}
