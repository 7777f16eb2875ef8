"""Mergers and histories of a key: laws where a mode promises them, and where it does not."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import DataError, OptionError, SchemaError
from serde_lab.merging.combiner import Entries, MergerCombiner, PartialUpdate, PartialUpdateCombiner
from serde_lab.merging.merger import (
    COMMIT_TIME_STRATEGY,
    EVENT_TIME_STRATEGY,
    PAYLOAD_STRATEGY,
    CommitTimeMerger,
    EventTimeMerger,
    Merged,
    MergedTable,
    RecordMerger,
)
from serde_lab.merging.payload_bridge import HUDI_PAYLOADS, AvroRecordMerger, RecordPayload
from serde_lab.merging.rules import DeleteMarkers, MergeRules, choose_merger, deletes_of
from serde_lab.merging.survivors import EntryHistory, MergeMode, sources, winners
from serde_lab.records.schema import RecordSchema

DATA = pa.schema([("k", pa.string()), ("o", pa.float64()), ("a", pa.int64()), ("b", pa.string())])
SCHEMA = RecordSchema(DATA, ("k",), (), ("o",))
MODEL = "org.apache.hudi.common.model"

ORDERING = st.sampled_from([float("nan"), 0.0, -0.0, 1.0, 2.0, float("-inf")])
VALUES = st.tuples(ORDERING, st.none() | st.integers(0, 3), st.none() | st.sampled_from("xy?"))
Version = tuple[float, int | None, str | None]


def batch(versions: list[Version]) -> pa.RecordBatch:
    """One version a row, all of one key."""
    columns = [["k"] * len(versions), *zip(*versions, strict=True)] if versions else [[]] * 4
    return pa.RecordBatch.from_arrays(
        [pa.array(list(c), f.type) for c, f in zip(columns, DATA, strict=True)], schema=DATA
    )


def history_of(versions: list[Version], by_event: bool = True) -> EntryHistory:
    rows = batch(versions)
    none = np.zeros(len(versions), np.bool_)
    ordering = [rows.column("o")] if by_event else []
    return EntryHistory(np.zeros(len(versions), np.int64), ordering, none, none)


def merged_all(merger: RecordMerger, versions: list[Version], left: bool = True) -> pa.RecordBatch:
    """All versions of a key, two at a time, from the left or from the right."""
    parts = [batch([version]) for version in versions]
    properties = {
        "hoodie.table.ordering.fields": "o",
        "hoodie.compaction.payload.class": f"{MODEL}.DefaultHoodieRecordPayload",
    }
    while len(parts) > 1:
        older, newer = parts[:2] if left else parts[-2:]
        one = merger.merge(older, newer, MergedTable(SCHEMA, properties)).rows
        parts = [one, *parts[2:]] if left else [*parts[:-2], one]
    return parts[0]


def same(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Bit by bit: NaN equals NaN, -0.0 does not equal 0.0."""
    return repr(one.to_pylist()) == repr(other.to_pylist())


def test_the_bridge_refuses_a_map_that_no_payload_can_hold() -> None:
    schema = RecordSchema(
        pa.schema([("k", pa.string()), ("m", pa.map_(pa.string(), pa.int64()))]), ("k",)
    )
    one, twice = (
        pa.RecordBatch.from_arrays(
            [pa.array(["k"]), pa.array([m], schema.data.field("m").type)], schema=schema.data
        )
        for m in ([("a", 1)], [("a", 1), ("a", 2)])
    )
    payload = f"{MODEL}.OverwriteWithLatestAvroPayload"
    table = MergedTable(schema, {"hoodie.compaction.payload.class": payload})
    assert same(AvroRecordMerger().merge(one, one, table).rows, one)
    with pytest.raises(DataError, match="column 'm' has a map with a key twice"):
        AvroRecordMerger().merge(one, twice, table)
    # of a longer batch, only its own rows count
    both = pa.concat_batches([twice, one])
    assert same(AvroRecordMerger().merge(one, both.slice(1), table).rows, one)


@pytest.mark.parametrize(
    ("kind", "fits", "far"),
    [
        (pa.date32(), [-719162, 2932896, None], 2932897),
        (pa.date32(), [0], -719163),
        (pa.timestamp("us", "UTC"), [253402300799999999], 253402300800000000),
        (pa.list_(pa.struct([("at", pa.timestamp("us"))])), [], [{"at": 2**62}]),
    ],
)
def test_the_bridge_refuses_times_that_python_has_none_for(
    kind: pa.DataType, fits: list[int | None], far: object
) -> None:
    schema = RecordSchema(pa.schema([("k", pa.string()), ("at", kind)]), ("k",))
    payload = f"{MODEL}.OverwriteWithLatestAvroPayload"
    table = MergedTable(schema, {"hoodie.compaction.payload.class": payload})

    def one(value: object) -> pa.RecordBatch:
        if isinstance(value, int):
            values = pa.array([value], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
        else:
            items = pa.array([2**62], pa.int64()).cast(pa.timestamp("us"))
            structs = pa.StructArray.from_arrays([items], ["at"])
            values = (
                pa.nulls(1, kind) if value is None else pa.ListArray.from_arrays([0, 1], structs)
            )
        return pa.RecordBatch.from_arrays([pa.array(["k"]), values.cast(kind)], schema=schema.data)

    for value in fits:
        assert same(AvroRecordMerger().merge(one(value), one(value), table).rows, one(value))
    with pytest.raises(DataError, match=r"column 'at.*' has a date or time outside the years 1 to"):
        AvroRecordMerger().merge(one(far), one(None), table)


MERGERS = {"commit": CommitTimeMerger(), "event": EventTimeMerger(), "bridge": AvroRecordMerger()}


@pytest.mark.parametrize("name", MERGERS)
@given(versions=st.lists(VALUES, min_size=3, max_size=3))
@settings(deadline=None, max_examples=50)
def test_choosing_is_associative(name: str, versions: list[Version]) -> None:
    merger = MERGERS[name]
    assert same(merged_all(merger, versions), merged_all(merger, versions, left=False))


@pytest.mark.parametrize("name", MERGERS)
@given(version=VALUES)
@settings(deadline=None, max_examples=30)
def test_merging_is_idempotent(name: str, version: Version) -> None:
    assert same(merged_all(MERGERS[name], [version, version]), batch([version]))


@given(
    versions=st.lists(VALUES, min_size=1, max_size=5, unique_by=lambda v: repr(v[0])),
    seed=st.randoms(),
)
@settings(deadline=None)
def test_by_event_time_the_order_of_arrival_does_not_matter(
    versions: list[Version], seed: object
) -> None:
    shuffled = versions.copy()
    seed.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = merged_all(EventTimeMerger(), versions), merged_all(EventTimeMerger(), shuffled)
    assert same(one, other)


def test_where_the_order_of_arrival_does_matter() -> None:
    low, high = (1.0, 1, "low"), (2.0, 2, "high")
    commit = CommitTimeMerger()
    assert not same(merged_all(commit, [low, high]), merged_all(commit, [high, low]))
    # ties
    twin = (1.0, 9, "twin")
    event = EventTimeMerger()
    assert not same(merged_all(event, [low, twin]), merged_all(event, [twin, low]))
    # a late version fills the gaps that are left when it comes, one that is not late all of them
    gaps: list[Version] = [(5.0, None, "top"), (1.0, 1, None), (3.0, 3, None)]
    assert filled(gaps) != filled([gaps[0], gaps[2], gaps[1]])


def test_a_commit_time_delete_breaks_associativity() -> None:
    # base 5, then a delete, then 3: one after the other the row 3 is there; where the last two have
    # been merged in a log before, the base row comes back
    entries = pa.array([5.0, None, 3.0])
    deleted, always = np.array([False, True, False]), np.array([False, True, False])
    group = np.zeros(3, np.int64)
    at_once = winners(EntryHistory(group, [entries], deleted, always))
    in_log = winners(EntryHistory(group[1:], [entries[1:]], deleted[1:], always[1:])) + 1
    pair = np.append(0, in_log)
    later = winners(
        EntryHistory(
            group[: len(pair)], [entries.take(pa.array(pair))], deleted[pair], always[pair]
        )
    )
    assert (at_once.tolist(), pair[later].tolist()) == ([2], [0])


def filled(
    versions: list[Version], mode: PartialUpdate = PartialUpdate.IGNORE_DEFAULTS
) -> dict[str, object]:
    combiner = PartialUpdateCombiner(mode, "?")
    row = np.arange(len(versions))
    folded = combiner.fold(Entries(batch(versions), history_of(versions), row))
    (made,) = folded.rows.to_pylist()
    return dict(made)


def one_by_one(versions: list[Version], mode: PartialUpdate) -> dict[str, object]:
    """PartialUpdateHandler, two versions at a time."""
    combiner = PartialUpdateCombiner(mode, "?")
    acc = batch(versions[:1])
    for version in versions[1:]:
        new = batch([version])
        wins = np.array([rank(new) >= rank(acc)])
        acc = combiner.combine(acc, new, wins).rows
    return acc.to_pylist()[0]  # type: ignore[no-any-return]


def rank(rows: pa.RecordBatch) -> tuple[bool, float, bool]:
    value = rows.column("o")[0].as_py()
    return value != value, 0.0 if value != value else value, not str(value).startswith("-")


@given(versions=st.lists(VALUES, min_size=1, max_size=6), mode=st.sampled_from(PartialUpdate))
@settings(deadline=None)
def test_a_batch_is_filled_as_its_versions_are_one_by_one(
    versions: list[Version], mode: PartialUpdate
) -> None:
    if mode is PartialUpdate.KEEP_VALUES:
        return
    assert repr(filled(versions, mode)) == repr(one_by_one(versions, mode))


@given(versions=st.lists(VALUES, min_size=1, max_size=6))
@settings(deadline=None)
def test_the_best_version_stands_first_among_sources(versions: list[Version]) -> None:
    history = history_of(versions)
    assert sources(history).tops.tolist() == winners(history).tolist()


@pytest.mark.slow
@given(versions=st.lists(VALUES, min_size=1, max_size=5))
@settings(deadline=None, max_examples=50)
def test_the_bridge_gives_what_the_mode_gives(versions: list[Version]) -> None:
    """Two versions at a time, payloads and native merging agree in the modes that both know."""
    rows = batch(versions)
    row = np.arange(len(versions))
    for mode, partial in (
        (MergeMode.EVENT_TIME, None),
        (MergeMode.COMMIT_TIME, None),
        (MergeMode.EVENT_TIME, PartialUpdate.IGNORE_DEFAULTS),
    ):
        ordering = ("o",) if mode is MergeMode.EVENT_TIME else ()
        roles = RecordSchema(DATA, ("k",), (), ordering)
        bridged = MergeRules(
            mode, partial_update=partial, classes=(f"{MODEL}.HoodieAvroRecordMerger",)
        )
        combiner = bridged.combiner(roles)
        assert combiner is not None
        history = history_of(versions, bool(ordering))
        entries = Entries(rows, history, row)
        native = MergeRules(mode, partial_update=partial).combiner(roles)
        expected = (
            rows.take(pa.array(winners(history))) if native is None else native.fold(entries).rows
        )
        assert same(combiner.fold(entries).rows, expected), mode


class Sums(RecordMerger):
    """Adds up `a`; nothing stays of a sum above 5."""

    strategy_id = str(uuid.uuid5(uuid.NAMESPACE_DNS, "sums"))
    record_types = ("ARROW", "AVRO")

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, table: MergedTable) -> Merged:
        old, new = (
            np.nan_to_num(b.column("a").to_numpy(zero_copy_only=False)) for b in (older, newer)
        )
        at = newer.schema.get_field_index("a")
        total = (old + new).astype(np.int64)
        return Merged(newer.set_column(at, newer.schema.field(at), pa.array(total)), total > 5)


class Narrow(Sums):
    """Forgets a column."""

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, *rest: object) -> Merged:  # type: ignore[override]
        return Merged(newer.select(["k"]))


HERE = __name__


def test_a_merger_folds_keys_of_many_versions() -> None:
    versions: list[Version] = [(1.0, n % 3, "x") for n in range(7)]
    rows = batch(versions)
    none = np.zeros(7, np.bool_)
    group = np.array([0, 0, 1, 2, 2, 2, 0])
    folded = MergerCombiner(Sums(), SCHEMA).fold(
        Entries(rows, EntryHistory(group, [rows.column("o")], none, none), np.arange(7))
    )
    # 0: 0 + 1 + 0, 1: 2, 2: 0 + 1 + 2
    assert folded.tops.tolist() == [2, 5, 6]
    assert folded.rows.column("a").to_pylist() == [2, 3, 1]
    assert folded.row.tolist() == [0, 1, 2]


def test_what_a_merger_deletes_is_a_delete_by_commit_time() -> None:
    versions: list[Version] = [(9.0, 3, "x"), (1.0, 4, "x")]
    folded = MergerCombiner(Sums(), SCHEMA).fold(
        Entries(batch(versions), history_of(versions), np.arange(2))
    )
    assert folded.row.tolist() == [-1]
    assert folded.always is not None
    assert folded.always.tolist() == [True]


class Partly(Sums):
    """Adds up `a` only where both have it."""

    def partial_merge(
        self, older: pa.RecordBatch, newer: pa.RecordBatch, given: Sequence[str], *rest: Any
    ) -> Merged:
        if "a" in given:
            return super().partial_merge(older, newer, given, *rest)
        at = newer.schema.get_field_index("b")
        return Merged(older.set_column(at, newer.schema.field(at), newer.column("b")))


def test_a_merger_is_told_which_columns_are_given() -> None:
    combiner = MergerCombiner(Partly(), SCHEMA, in_log=True)
    # all three versions of the first key, and each of them of another one
    versions: list[Version] = [(1.0, 1, "x"), (2.0, 2, None), (3.0, None, "z")]
    rows, none = batch(versions * 2), np.zeros(6, np.bool_)
    present = {"a": np.array([True, True, False] * 2), "b": np.array([True, False, True] * 2)}
    history = EntryHistory(np.array([0, 0, 0, 1, 2, 3]), [rows.column("o")], none, none)
    folded = combiner.fold(Entries(rows, history, np.arange(6), present))
    assert folded.rows.column("a").to_pylist() == [3, 1, 2, None]
    assert folded.rows.column("b").to_pylist() == ["z", "x", None, "z"]
    assert folded.present is not None
    assert {name: mask.tolist() for name, mask in folded.present.items()} == {
        "a": [True, True, True, False],
        "b": [True, True, False, True],
    }
    stored = batch([(0.0, 1, "old")] * 4)
    made = combiner.combine(stored, folded.rows, np.ones(4, np.bool_), folded.present)
    assert made.rows.column("a").to_pylist() == [4, 2, 3, 1]
    assert made.rows.column("b").to_pylist() == ["z", "x", "old", "z"]


def test_deletes_among_partial_rows_have_no_columns() -> None:
    combiner = MergerCombiner(Partly(), SCHEMA, in_log=True)
    rows = batch([(1.0, 1, None)])
    deleted = np.array([False, True, True])
    values = pa.array([1.0, 2.0, 2.0])
    history = EntryHistory(np.array([0, 0, 1]), [values], deleted, np.zeros(3, np.bool_))
    folded = combiner.fold(Entries(rows, history, np.array([0, -1, -1]), {"b": np.array([False])}))
    assert folded.row.tolist() == [-1, -1]
    assert folded.present is not None
    assert folded.present["b"].tolist() == []


def test_a_merger_must_give_the_rows_that_it_was_asked_for() -> None:
    rows = batch([(1.0, 1, "x")])
    with pytest.raises(SchemaError, match=r"test_mergers:Narrow was given 1 pairs of k, o, a, b"):
        MergerCombiner(Narrow(), SCHEMA).combine(rows, rows, np.array([True]))


def test_the_first_merger_that_fits_is_taken() -> None:
    names = (f"{MODEL}.OverwriteWithLatestMerger", f"{HERE}:Sums", f"{HERE}:Narrow")
    assert type(choose_merger(names, Sums.strategy_id, "ARROW")) is Sums
    assert type(choose_merger(names, COMMIT_TIME_STRATEGY, "PICKLE")) is CommitTimeMerger
    with pytest.raises(OptionError) as raised:
        choose_merger(names, Sums.strategy_id, "PICKLE")
    assert str(raised.value) == (
        f"no merger fits the table's strategy {Sums.strategy_id} and records of type PICKLE: "
        f"{MODEL}.OverwriteWithLatestMerger offers {COMMIT_TIME_STRATEGY} for *; "
        f"{HERE}:Sums offers {Sums.strategy_id} for ARROW, AVRO; "
        f"{HERE}:Narrow offers {Sums.strategy_id} for ARROW, AVRO"
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "expected package.module:Class or one of"),
        ("no.such.module:Merger", "cannot be loaded"),
        (f"{HERE}:Missing", "cannot be loaded"),
        ("serde_lab.records.schema:RecordSchema", "is not a RecordMerger"),
    ],
)
def test_a_merger_that_is_none_is_refused(name: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        choose_merger((name,), EVENT_TIME_STRATEGY, "ARROW")


class Newest(CommitTimeMerger):
    """An implementation of the user's, of a strategy that the lab knows."""


def test_implementations_of_a_strategy_that_the_lab_knows() -> None:
    for name, mode in (
        (f"{MODEL}.OverwriteWithLatestMerger", MergeMode.COMMIT_TIME),
        ("org.apache.hudi.DefaultSparkRecordMerger", MergeMode.EVENT_TIME),
    ):
        assert MergeRules(mode, classes=(name,)).combiner(SCHEMA) is None
    own = MergeRules(MergeMode.COMMIT_TIME, classes=(f"{HERE}:Newest",)).combiner(SCHEMA)
    assert isinstance(own, MergerCombiner)
    with pytest.raises(
        OptionError, match=f"no merger fits the table's strategy {EVENT_TIME_STRATEGY}"
    ):
        MergeRules(MergeMode.EVENT_TIME, classes=(f"{HERE}:Newest",)).combiner(SCHEMA)


class Longest(RecordPayload):
    """A user's payload: the longer text stays."""

    def pre_combine(self, older: RecordPayload, properties: Mapping[str, str]) -> RecordPayload:  # type: ignore[override]
        mine, other = self.decode(self.avro)["b"] or "", older.decode(older.avro)["b"] or ""
        return self if len(mine) >= len(other) else older

    def combine_and_get_update_value(
        self, current: dict[str, object], properties: Mapping[str, str]
    ) -> dict[str, object] | None:
        mine = self.decode(self.avro)
        return mine if len(mine["b"] or "") >= len(str(current["b"] or "")) else current


def test_a_payload_class_of_the_users() -> None:
    rules = MergeRules(MergeMode.CUSTOM, PAYLOAD_STRATEGY, payload_class=f"{HERE}:Longest")
    combiner = rules.combiner(SCHEMA)
    assert combiner is not None
    assert combiner.phase == "payload"
    older, newer = batch([(9.0, 1, "xxx"), (9.0, 2, "x")]), batch([(1.0, 3, "yy"), (1.0, 4, "yy")])
    result = combiner.combine(older, newer, np.zeros(2, np.bool_))
    assert result.rows.column("b").to_pylist() == ["xxx", "yy"]
    assert result.older_kept is not None
    assert result.older_kept.tolist() == [True, False]


class Sum(RecordPayload):
    """A user's payload that adds to the stored record in place, as many do."""

    def combine_and_get_update_value(
        self, current: dict[str, Any], properties: Mapping[str, str]
    ) -> dict[str, Any]:
        current["a"] += self.decode(self.avro)["a"]
        return current


def test_a_payload_may_give_back_the_stored_record_with_other_values() -> None:
    rules = MergeRules(MergeMode.CUSTOM, PAYLOAD_STRATEGY, payload_class=f"{HERE}:Sum")
    combiner = rules.combiner(SCHEMA)
    assert combiner is not None
    older, newer = batch([(9.0, 1, "x"), (9.0, 2, None)]), batch([(1.0, 3, "y"), (1.0, 0, "y")])
    result = combiner.combine(older, newer, np.zeros(2, np.bool_))
    assert same(result.rows, batch([(9.0, 4, "x"), (9.0, 2, None)]))
    assert result.older_kept is not None
    assert result.older_kept.tolist() == [False, True]


class DataAlone(Longest):
    """A user's payload that makes a new record, without the meta columns of stored ones."""

    def combine_and_get_update_value(
        self, current: dict[str, object], properties: Mapping[str, str]
    ) -> dict[str, object] | None:
        found = super().combine_and_get_update_value(current, properties)
        assert found is not None
        return {name: found[name] for name in ("k", "n", "ts", "b")}


class OtherKey(Longest):
    """A user's payload that gives the row another key."""

    def combine_and_get_update_value(
        self, current: dict[str, object], properties: Mapping[str, str]
    ) -> dict[str, object] | None:
        return {**current, "k": "other"}


class OtherType(Longest):
    """A user's payload that gives a number where the table has a text."""

    def combine_and_get_update_value(
        self, current: dict[str, object], properties: Mapping[str, str]
    ) -> dict[str, object] | None:
        return {**current, "b": 5}


class NoneOfBoth(Longest):
    """A user's payload that keeps neither of two records."""

    def pre_combine(self, older: RecordPayload, properties: Mapping[str, str]) -> RecordPayload:  # type: ignore[override]
        found: Any = None
        return found  # type: ignore[no-any-return]


class Insertable(RecordPayload):
    """A user's payload that would change what is inserted."""

    def get_insert_value(self, properties: Mapping[str, str]) -> dict[str, Any] | None:
        return {**self.decode(self.avro), "a": 1}


class OwnDeletes(RecordPayload):
    """A user's payload with a mark of its own for deletes, which rows of new keys may have, too."""

    def is_delete(self, datum: Mapping[str, Any], properties: Mapping[str, str]) -> bool:
        return datum["b"] == "?"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *(
            (name, "payload class")
            for name in ("no.Such", f"{RecordSchema.__module__}:RecordSchema")
        ),
        ("a.b:C", "payload class"),
        (
            f"{HERE}:Insertable",
            "get_insert_value of its own: the lab does not call it for rows of new",
        ),
        (f"{HERE}:OwnDeletes", "is_delete of its own"),
    ],
)
def test_a_payload_class_that_cannot_be_followed_is_refused_before_it_merges(
    name: str, says: str
) -> None:
    rules = MergeRules(MergeMode.CUSTOM, PAYLOAD_STRATEGY, payload_class=name)
    with pytest.raises(OptionError, match=says):
        rules.combiner(SCHEMA)


@dataclass
class Case:
    """A payload class, what is stored, what comes, and what stands."""

    name: str
    stored: Version
    new: Version
    expected: Version | None


@pytest.mark.parametrize(
    "case",
    [
        Case("OverwriteWithLatestAvroPayload", (9.0, 1, "x"), (1.0, None, "y"), (1.0, None, "y")),
        Case("DefaultHoodieRecordPayload", (9.0, 1, "x"), (1.0, 2, "y"), (9.0, 1, "x")),
        Case("DefaultHoodieRecordPayload", (1.0, 1, "x"), (1.0, 2, "y"), (1.0, 2, "y")),
        Case("DefaultHoodieRecordPayload", (1.0, 1, "x"), (1.0, 2, "?"), None),
        Case("EventTimeAvroPayload", (1.0, 1, "x"), (1.0, 2, "?"), (1.0, 2, "?")),
        Case(
            "OverwriteNonDefaultsWithLatestAvroPayload",
            (9.0, 1, "x"),
            (1.0, None, "y"),
            (1.0, 1, "y"),
        ),
        Case("PartialUpdateAvroPayload", (9.0, None, "x"), (1.0, 2, "y"), (9.0, 2, "x")),
        Case("PartialUpdateAvroPayload", (1.0, 1, "x"), (2.0, None, "y"), (2.0, 1, "y")),
    ],
    ids=lambda case: f"{case.name} {case.stored} {case.new}",
)
def test_hudis_payload_classes(case: Case) -> None:
    assert f"{MODEL}.{case.name}" in HUDI_PAYLOADS
    rules = MergeRules(
        MergeMode.CUSTOM,
        PAYLOAD_STRATEGY,
        markers=DeleteMarkers("b", "?"),
        payload_class=f"{MODEL}.{case.name}",
    )
    combiner = rules.combiner(SCHEMA)
    assert combiner is not None
    result = combiner.combine(batch([case.stored]), batch([case.new]), np.array([True]))
    if case.expected is None:
        assert result.deleted is not None
        assert result.deleted.tolist() == [True]
    else:
        assert same(result.rows, batch([case.expected]))


def test_a_delete_has_no_ordering_value_where_hudi_takes_its_own_for_none() -> None:
    marked = np.array([True, True, False, True])
    values = pa.array([0, 1, 0, None], pa.int32())
    assert deletes_of(marked, [values]).always.tolist() == [True, False, False, False]
    days = values.cast(pa.date32())
    assert deletes_of(marked, [days]).always.tolist() == [True, False, False, False]
    for others in ([values.cast(pa.int64())], [values, values]):
        assert not deletes_of(marked, others).always.any()
    assert deletes_of(marked, []).always.tolist() == marked.tolist()
