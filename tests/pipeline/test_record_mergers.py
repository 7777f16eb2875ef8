"""Mergers that declare their record type: given the strategy's own records, held to what they return."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import OptionError, SchemaError
from serde_lab.merging.merger import (
    ConvertedEventTimeMerger,
    EventTimeMerger,
    Merged,
    MergedTable,
    OwnRecordsEventTimeMerger,
    RecordMerger,
)
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.read import parse_read_options, plan_read
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import Records, SerdeOptions
from serde_lab.serde.registry import BUILT_IN, StrategyRecords, bind, strategy
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.table import HoodieTable
from tests.pipeline.lab_table import MOR, LabTable
from tests.pipeline.test_merge_modes import SCHEMA, judge, rows

MERGERS = "hoodie__write__record__merge__custom__implementation__classes"
EVERY = tuple(name.upper() for name in BUILT_IN)
BOUND = [(name, execution) for name in BUILT_IN for execution in strategy(name).executions]
KINDS = {"cow": {}, "mor": MOR}


class Sums(RecordMerger):
    """Adds up `x`, on Arrow batches; nothing stays of a sum above 100."""

    strategy_id = "11111111-2222-3333-4444-555555555555"

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        assert isinstance(older, pa.RecordBatch)
        assert table.serde is None
        summed = _with_sum(older, newer)
        return Merged(summed, _above(summed, 100))


class SumsOfRecords(Sums):
    """The same on records; it notes the records that it was given."""

    record_types = EVERY
    given: ClassVar[set[type]] = set()

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        assert type(older) is type(newer)
        self.given.add(type(older))
        assert table.serde is not None
        summed = _with_sum(older.to_arrow(), newer.to_arrow())
        return Merged(table.serde.from_arrow(summed), _above(summed, 100))


def _with_sum(older: pa.RecordBatch, newer: pa.RecordBatch) -> pa.RecordBatch:
    total = pc.add(older.column("x"), newer.column("x"))
    at = newer.schema.get_field_index("x")
    return newer.set_column(at, newer.schema.field(at), total)


def _above(batch: pa.RecordBatch, most: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    found = pc.fill_null(pc.greater(batch.column("x"), most), False)
    return found.to_numpy(zero_copy_only=False)


CUSTOM = {
    "hoodie.write.record.merge.mode": "CUSTOM",
    "hoodie.write.record.merge.strategy.id": Sums.strategy_id,
}


def named(merger: type[RecordMerger]) -> str:
    return f"{merger.__module__}:{merger.__qualname__}"


def of_strategy(name: str, execution: str) -> dict[str, str]:
    return {"serde_lab__strategy": name, "serde_lab__execution": execution}


def read_by(table: HoodieTable, merger: type[RecordMerger], records: StrategyRecords) -> pa.Table:
    """The snapshot, merged with the records of a strategy, without what differs from write to write."""
    found = plan_snapshot(table.merging_by([named(merger)], records)).read()
    names = ["_hoodie_record_key", *(n for n in found.schema.names if not n.startswith("_hoodie"))]
    return found.select(names).sort_by("_hoodie_record_key")


def own_type(name: str, execution: str) -> type[Records]:
    schema = RecordSchema(pa.schema([("k", pa.string())]), ("k",))
    bound = bind(name, schema, SerdeOptions(execution=execution))  # type: ignore[arg-type]
    nothing = pa.RecordBatch.from_pylist([], schema.batch_schema)
    return type(bound.from_arrow(nothing))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "execution"), BOUND)
def test_a_merger_is_given_the_records_of_the_write(
    name: str, execution: str, kind: str, tmp_path: Path
) -> None:
    records = StrategyRecords(name, SerdeOptions(execution=execution))  # type: ignore[arg-type]
    own = own_type(name, execution)
    found = {}
    for merger in (Sums, SumsOfRecords):
        SumsOfRecords.given.clear()
        table = LabTable(tmp_path / merger.__name__, CUSTOM | KINDS[kind])
        options = {MERGERS: named(merger), **of_strategy(name, execution)}
        table.upsert([("a", n, 5, 1.0) for n in range(40)] + [("b", 0, 1, None)], **options)
        # three and two versions in a batch, whatever their ordering values; one that leaves nothing
        twice = [("a", 0, 1, 2.0), ("a", 0, 9, 4.0), ("a", 1, 5, 8.0), ("a", 0, 0, 16.0)]
        table.upsert([*twice, ("a", 9, 5, 16.0), ("c", 1, 1, 1.0), ("a", 2, 5, 101.0)], **options)
        if merger is SumsOfRecords:
            assert SumsOfRecords.given == {own}
        table.delete([("a", 3, 0, None)], **options)
        # each entry by itself meets what is in the log and in the base file
        table.upsert([("a", 0, 5, 64.0), ("a", 3, 5, 7.0), ("c", 1, 0, 2.0)], **options)
        SumsOfRecords.given.clear()
        rows_now = read_by(table.table, merger, records)
        if kind == "mor" and merger is SumsOfRecords:
            assert SumsOfRecords.given == {own}
            compacted = table.table.merging_by([named(merger)], records)
            assert compact(compacted) is not None
            assert not table.logs()
            assert read_by(table.table, merger, records).equals(rows_now)
        found[merger] = rows_now
        values = dict(
            zip(rows_now["_hoodie_record_key"].to_pylist(), rows_now["x"].to_pylist(), strict=True)
        )
        expected = {"k:a,n:0": 87.0, "k:a,n:1": 9.0, "k:a,n:2": None}
        # on merge-on-read a delete in the log does not part later rows from the base file's
        expected["k:a,n:3"] = 7.0 if kind == "cow" else 8.0
        expected |= {"k:a,n:9": 17.0, "k:a,n:4": 1.0, "k:c,n:1": 3.0, "k:b,n:0": None}
        assert {key: values.get(key) for key in expected} == expected
        assert "k:a,n:2" not in values
    assert found[Sums].equals(found[SumsOfRecords])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "execution"), BOUND)
def test_records_merge_into_the_files_of_converted_ones(
    name: str, execution: str, kind: str, tmp_path: Path
) -> None:
    found: list[list[object]] = []
    for merger in (EventTimeMerger, ConvertedEventTimeMerger, OwnRecordsEventTimeMerger):
        table = LabTable(tmp_path / merger.__name__, KINDS[kind], SCHEMA)
        options = {MERGERS: named(merger), **of_strategy(name, execution)}
        draw = np.random.default_rng(3)
        for _ in range(3):
            table.upsert(rows(draw, 60, 30), **options)
        judge(table, rust=kind == "cow")
        base_files = sorted(table.path.rglob("*.parquet"))
        found.append([contents(file) for file in base_files])
        logs = sorted(table.path.rglob(".*.log.*"))
        found[-1] += [INSTANT.sub(b"", file.read_bytes()) for file in logs]
        assert len(logs) == (8 if kind == "mor" else 0)
    # the first, which merges by ordering values alone, writes the same rows in another order
    assert found[1] == found[2]


def contents(file: Path) -> list[dict[str, object]]:
    """The rows of a base file, without the names of instants, which differ from table to table."""
    stored = pq.read_table(file)
    kept = [n for n in stored.schema.names if n not in NAMED_BY_INSTANT]
    return stored.select(kept).to_pylist()


INSTANT = re.compile(rb"20\d{15}")
NAMED_BY_INSTANT = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")


class TooFew(SumsOfRecords):
    """Loses a row."""

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        return Merged(newer.take(np.arange(len(newer) - 1)))


class OtherKeys(SumsOfRecords):
    """Mixes up its rows."""

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        return Merged(newer.take(np.arange(len(newer))[::-1]))


class Converts(SumsOfRecords):
    """Gives an Arrow batch for records."""

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        return Merged(newer.to_arrow())


class OtherColumns(SumsOfRecords):
    """Gives records of another schema."""

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        data = pa.schema([("k", pa.string())])
        narrow = bind("arrow", RecordSchema(data, ("k",)), SerdeOptions())
        batch = newer.to_arrow().select(narrow.schema.batch_schema.names)
        return Merged(narrow.from_arrow(batch))


class NotRecords(Sums):
    """Takes Arrow batches and gives none."""

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        return Merged(newer.to_pylist())


WRONG = {
    TooFew: r"was given 2 pairs of records of k, n, .* and gave 1 of k, n,",
    OtherKeys: r"was given record key 'k:a,n:\d' and gave 'k:a,n:\d'",
    Converts: r"was given \w+ and gave RecordBatch",
}


@pytest.mark.parametrize("merger", WRONG)
@pytest.mark.parametrize(("name", "execution"), BOUND)
def test_a_merger_that_returns_other_records_is_refused_by_name(
    name: str, execution: str, merger: type[RecordMerger], tmp_path: Path
) -> None:
    one_bucket = {"hoodie.bucket.index.num.buckets": "1"}
    table = LabTable(tmp_path, CUSTOM | one_bucket)
    options = {MERGERS: named(merger), **of_strategy(name, execution)}
    table.upsert([("a", 0, 5, 1.0), ("a", 1, 5, 1.0)], **options)
    before = [i.time for i in table.table.timeline().completed()]
    with pytest.raises(SchemaError, match=f"{merger.__qualname__} {WRONG[merger]}"):
        table.upsert([("a", 0, 5, 1.0), ("a", 1, 5, 1.0)], **options)
    assert [i.time for i in table.table.timeline().completed()] == before


class OtherKeysOfBatches(Sums):
    """Mixes up the rows of Arrow batches."""

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        return Merged(newer.take(np.arange(len(newer))[::-1].copy()))


class Numbers(Sums):
    """Marks by numbers what a mask is to mark: as an index, 0 and 1 are places."""

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        return Merged(newer, None, np.zeros(len(newer), np.int64))


class ShortMask(Sums):
    """A mask of one for all pairs."""

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        return Merged(newer, np.array([True]))


class NoMerged(Sums):
    """Gives the rows alone."""

    def merge(self, older: Any, newer: Any, table: MergedTable) -> Merged:
        found: Any = newer
        return found  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("merger", "says"),
    [
        (OtherKeysOfBatches, "OtherKeysOfBatches was given n 0 and gave 1"),
        (Numbers, r"Numbers was given 2 pairs, and its older_kept is int64 of shape \(2,\)"),
        (ShortMask, r"ShortMask was given 2 pairs, and its deleted is bool of shape \(1,\)"),
        (NoMerged, "NoMerged gave RecordBatch, expected Merged"),
        (OtherColumns, r"OtherColumns was given 2 pairs of records of k, n, .* and gave 2 of k$"),
        (NotRecords, "NotRecords was given RecordBatch and gave list"),
    ],
)
def test_what_else_is_refused(merger: type[RecordMerger], says: str, tmp_path: Path) -> None:
    table = LabTable(tmp_path, CUSTOM | {"hoodie.bucket.index.num.buckets": "1"})
    options = {MERGERS: named(merger)}
    table.upsert([("a", 0, 5, 1.0), ("a", 1, 5, 1.0)], **options)
    with pytest.raises(SchemaError, match=says):
        table.upsert([("a", 0, 5, 1.0), ("a", 1, 5, 1.0)], **options)


class OfPickle(SumsOfRecords):
    """A single text is one type, in letters of any size."""

    record_types = "pickle"


class OfRows(SumsOfRecords):
    """For typed rows only."""

    record_types = ("INTERNAL_ROW",)


def test_of_the_mergers_of_a_write_the_one_for_its_strategy_is_used(tmp_path: Path) -> None:
    both = {MERGERS: f"{named(OfPickle)},{named(OfRows)}"}
    table = LabTable(tmp_path, CUSTOM)
    for name in ("pickle", "internal_row"):
        SumsOfRecords.given.clear()
        table.upsert([("a", 0, 5, 1.0), ("a", 0, 5, 1.0)], serde_lab__strategy=name, **both)
        assert SumsOfRecords.given == {own_type(name, "")}
    before = table.table.timeline().instants()
    with pytest.raises(
        OptionError, match=r"records of type AVRO: .*OfPickle offers .* for PICKLE; "
    ):
        table.upsert([("a", 0, 5, 1.0)], serde_lab__strategy="avro", **both)
    assert table.table.timeline().instants() == before


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_read_names_the_strategy_whose_records_a_merger_is_given(
    name: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path / "table", CUSTOM | MOR)
    options = {MERGERS: named(SumsOfRecords), **of_strategy(name, strategy(name).executions[0])}
    table.upsert([("a", n, 5, 1.0) for n in range(20)], **options)
    table.upsert([("a", n, 5, 2.0) for n in range(9)], **options)

    def read(merger: type[RecordMerger], **given: str) -> pa.Table:
        asked = {"hoodie.write.record.merge.custom.implementation.classes": named(merger), **given}
        found = plan_read(table.table, parse_read_options(asked)).read()
        return found.sort_by([("k", "ascending"), ("n", "ascending")])

    by_arrow = read(Sums)
    assert pc.sum(by_arrow.column("x")).as_py() == 20 + 18
    SumsOfRecords.given.clear()
    assert read(SumsOfRecords, **{"serde_lab.strategy": name}).equals(by_arrow)
    assert SumsOfRecords.given == {own_type(name, strategy(name).executions[0])}
    SumsOfRecords.given.clear()
    assert (
        compact(table.table.merging_by([named(SumsOfRecords)]), records=StrategyRecords(name))
        is not None
    )
    assert SumsOfRecords.given == {own_type(name, strategy(name).executions[0])}
    assert read(Sums).equals(by_arrow)
