"""What is asked of a batch is what it holds, for any shares, any seed and any cut into pieces."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serde_lab.errors import DataError, UsageError
from serde_lab.inputs.parquet_rows import ParquetRows
from serde_lab.inputs.parts import checksum
from serde_lab.inputs.update_stream import Shares, UpdateStream, count
from serde_lab.records.schema import IS_DELETED

ROWS = 400
KEY = ("k", "n")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ParquetRows:
    folder = tmp_path_factory.mktemp("source")
    table = pa.table(
        {
            "k": pa.array([i // 3 for i in range(ROWS)], pa.int64()),
            "n": pa.array([i % 3 for i in range(ROWS)], pa.int32()),
            "part": [f"p{i % 4}" for i in range(ROWS)],
            "text": [f"row {i}" for i in range(ROWS)],
            "stamp": pa.array([1_000 + i % 7 for i in range(ROWS)], pa.timestamp("us", "UTC")),
            "small": pa.array([i % 100 for i in range(ROWS)], pa.int8()),
            "day": pa.array([date(2020, 1, 1 + i % 28) for i in range(ROWS)]),
        }
    )
    files = []
    for number, (first, stop) in enumerate([(0, 150), (150, 151), (151, ROWS)]):
        files.append(folder / f"{number}.parquet")
        pq.write_table(table.slice(first, stop - first), files[-1], row_group_size=60)
    return ParquetRows(files)


shares = st.floats(0, 1, allow_nan=False)


@st.composite
def histories(draw: st.DrawFn) -> list[Shares]:
    """A first batch of inserts, then batches whose shares can hold together."""
    first = draw(st.integers(1, ROWS))
    batches = [Shares("bulk_insert", first)]
    alive = first
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 4)) == 0 and alive > 1:
            rows = draw(st.integers(1, alive - 1))
            batches.append(Shares("delete", rows))
            alive -= rows
            continue
        rows = draw(st.integers(1, 300))
        duplicates = draw(st.floats(0, 0.9))
        keys = rows - min(int(rows * duplicates + 0.5), rows - 1)
        updates = draw(shares) * min(1.0, alive / keys) * 0.99
        stored = int(keys * updates + 0.5)
        late = draw(st.floats(0, 0.5)) * max(0, stored - 1) / rows
        deletes = draw(st.floats(0, 0.4)) * max(0, stored - 2) / rows
        batches.append(Shares("upsert", rows, updates, duplicates, late, deletes))
        counts = count(batches[-1])
        alive += counts.inserts - counts.deletes
    return batches


def stream(source: ParquetRows, batches: Sequence[Shares], **more: object) -> UpdateStream:
    arguments: dict[str, object] = {"key": KEY, "partition": ("part",), "new_keys": True, **more}
    return UpdateStream(source, batches, **arguments)  # type: ignore[arg-type]


def rows_of(updates: UpdateStream, number: int) -> pa.Table:
    return pa.concat_tables(updates.tables(number)).combine_chunks()


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches=histories(), seed=st.integers(0, 2**31), piece=st.sampled_from([1 << 20, 100, 37]))
@pytest.mark.parametrize("ordering", ["event_ts", "stamp"])
def test_a_batch_holds_what_was_asked(
    source: ParquetRows, ordering: str, batches: list[Shares], seed: int, piece: int
) -> None:
    updates = stream(
        source,
        batches,
        seed=seed,
        rows_per_piece=piece,
        ordering=() if ordering == "event_ts" else (ordering,),
    )
    # a replay row by row, which shares no code with the derivation
    stored: dict[tuple[int, int], tuple[int, str]] = {}
    seen: set[tuple[tuple[int, int], int]] = set()
    for number, batch in enumerate(batches):
        counts = updates.counts[number]
        table = rows_of(updates, number)
        assert table.schema.names == updates.schema.names
        assert len(table) == batch.rows
        keys = list(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))
        values = table[ordering].cast(pa.int64()).to_pylist()
        marks = (
            table[IS_DELETED].to_pylist()
            if IS_DELETED in table.schema.names
            else [False] * len(table)
        )
        partitions = table["part"].to_pylist()
        before = dict(stored)
        known = [key for key in set(keys) if key in before]
        assert len(set(keys)) == counts.keys
        assert len(known) == counts.updates
        assert len(table) - len(set(keys)) == counts.duplicates
        assert sum(marks) == counts.deletes
        late = 0
        times = Counter(keys)
        for key, value, mark, partition in zip(keys, values, marks, partitions, strict=True):
            assert (key, value) not in seen, "two rows of one key tie"
            seen.add((key, value))
            if key in before:
                late += value < before[key][0]
                assert partition == before[key][1], "an update stays in its partition"
            if batch.operation == "delete" or mark:
                assert key in before
                assert times[key] == 1
                assert value > before[key][0]
                stored.pop(key, None)
            elif key not in stored or value > stored[key][0]:
                stored[key] = (value, partition)
        assert late == counts.late


@settings(max_examples=20, deadline=None)
@given(batches=histories(), seed=st.integers(0, 2**31))
def test_equal_seeds_give_equal_rows_and_others_do_not(
    source: ParquetRows, batches: list[Shares], seed: int
) -> None:
    first, again = (stream(source, batches, seed=seed) for _ in range(2))
    other = stream(source, batches, seed=seed + 1)
    for number in reversed(range(len(batches))):
        assert checksum(rows_of(first, number)) == checksum(rows_of(again, number))
        if number and batches[number].rows > 20:
            assert checksum(rows_of(first, number)) != checksum(rows_of(other, number))


def test_content_is_the_same_on_every_machine(source: ParquetRows) -> None:
    batches = [Shares("bulk_insert", 300), Shares("upsert", 300, 0.5, 0.1, 0.05, 0.05)]
    updates = stream(source, batches, seed=7)
    # frozen: a change here makes every cached folder and every baseline stale
    assert [checksum(rows_of(updates, n)) for n in range(2)] == [
        "sha256:4a19c75fd06dabfd98ca4b25e060c4a02d2e13457bf2a5becef4761fcd336038",
        "sha256:16ba8d3a142558f8344d59dcfe9321f4266f685e162e0da6986dc3104bc42163",
    ]


def test_a_first_batch_is_the_source_itself(source: ParquetRows) -> None:
    updates = stream(source, [Shares("bulk_insert", 250)])
    assert (
        rows_of(updates, 0).drop_columns(["event_ts"]).equals(source.read(0, 250).combine_chunks())
    )


def test_an_update_changes_the_payload(source: ParquetRows) -> None:
    batches = [Shares("bulk_insert", 300), Shares("upsert", 100, updates=1.0)]
    table = rows_of(stream(source, batches), 1)
    own = [f"row {3 * k + n}" for k, n in zip(*(table[c].to_pylist() for c in KEY), strict=True)]
    changed = sum(a != b for a, b in zip(own, table["text"].to_pylist(), strict=True))
    assert changed > 90


def test_rows_of_a_batch_come_in_no_order(source: ParquetRows) -> None:
    batches = [Shares("bulk_insert", 400), Shares("upsert", 200, updates=0.9)]
    keys = rows_of(stream(source, batches), 1)["k"].to_pylist()
    ascending = sum(a < b for a, b in itertools.pairwise(keys))
    assert 60 < ascending < 140


def test_keys_beyond_the_source_are_made_by_adding(source: ParquetRows) -> None:
    table = rows_of(stream(source, [Shares("bulk_insert", 2 * ROWS + 5)]), 0)
    step = 1 + max(source.read(0, ROWS)["k"].to_pylist())
    assert table["k"].to_pylist() == [i % ROWS // 3 + i // ROWS * step for i in range(2 * ROWS + 5)]
    assert len(set(zip(*(table[c].to_pylist() for c in KEY), strict=True))) == 2 * ROWS + 5


def test_own_ordering_values_of_the_first_batch_stay(source: ParquetRows) -> None:
    table = rows_of(stream(source, [Shares("bulk_insert", 9)], ordering=("day",)), 0)
    assert table["day"].to_pylist() == [date(2020, 1, 1 + i) for i in range(9)]
    assert "event_ts" not in table.schema.names


def test_own_dates_move_by_more_than_their_extent(source: ParquetRows) -> None:
    batches = [Shares("bulk_insert", 100), Shares("upsert", 100, 1.0, late=0.5)]
    table = rows_of(stream(source, batches, ordering=("day",)), 1)
    assert {d.year for d in table["day"].to_pylist()} == {2019, 2020}
    assert min(table["day"].to_pylist()) < date(2020, 1, 1)
    assert max(table["day"].to_pylist()) > date(2020, 1, 28)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Shares("upsert", 10, updates=1.5), "updates = 1.5: expected a share from 0 to 1"),
        (Shares("upsert", 0), "rows = 0: expected at least one row"),
        (Shares("upsert", 10, updates=0.1, late=0.2), "late and deletes need 2 rows"),
        (Shares("upsert", 10, 1.0, 0.5, deletes=0.5), "duplicates repeat only keys that the batch"),
        (Shares("delete", 10, late=0.1), "a delete has no duplicates"),
    ],
)
def test_shares_that_cannot_hold_are_refused(batch: Shares, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        count(batch)


def test_halves_round_up() -> None:
    assert count(Shares("upsert", 5, updates=0.5)).updates == 3
    assert count(Shares("upsert", 5, updates=0.5)).inserts == 2


def test_updating_more_keys_than_are_stored_is_refused(source: ParquetRows) -> None:
    batches = [Shares("bulk_insert", 10), Shares("delete", 8), Shares("upsert", 10, updates=0.3)]
    with pytest.raises(UsageError, match=r"batch 3 \(upsert\) updates 3 stored keys, but only 2"):
        stream(source, batches)


def test_messages_call_batches_by_their_names(source: ParquetRows) -> None:
    with pytest.raises(UsageError, match=r"commit.1: updates = 2: expected a share"):
        stream(source, [Shares("upsert", 3, updates=2)], names=["commit.1"])
    with pytest.raises(UsageError, match=r"commit.1 \(upsert\) updates 3 stored keys"):
        stream(source, [Shares("upsert", 3, updates=1)], names=["commit.1"])


@pytest.mark.parametrize("column", ["text", "small"])
def test_a_single_batch_keeps_ordering_values_of_any_type(source: ParquetRows, column: str) -> None:
    table = rows_of(stream(source, [Shares("bulk_insert", 9)], ordering=(column,)), 0)
    assert table[column].equals(source.read(0, 9)[column])


def test_running_out_of_keys_is_refused(source: ParquetRows) -> None:
    batches = [Shares("bulk_insert", ROWS), Shares("upsert", 10, updates=0.5)]
    with pytest.raises(UsageError, match="need 405 different keys, but the data has 400 rows"):
        stream(source, batches, new_keys=False)


def test_new_keys_are_made_for_integers_only(source: ParquetRows) -> None:
    with pytest.raises(DataError, match="'text', the first of the key, has the type string"):
        stream(source, [Shares("bulk_insert", ROWS + 1)], key=("text",))


@pytest.mark.parametrize(
    ("column", "said"),
    [("text", "has the type string"), ("small", "has values from 0 to 99: newer values")],
)
def test_ordering_values_that_cannot_move_are_refused(
    source: ParquetRows, column: str, said: str
) -> None:
    batches = [Shares("bulk_insert", 10), Shares("upsert", 10, updates=0.5)]
    with pytest.raises(DataError, match=said):
        stream(source, batches, ordering=(column,))


@pytest.mark.parametrize("more", [{"updates": 0.5}, {"duplicates": 0.5}])
def test_an_ordering_field_in_the_key_is_refused(
    source: ParquetRows, more: dict[str, float]
) -> None:
    """Newer values would be other keys: what is asked for as an update would be an insert."""
    batches = [Shares("bulk_insert", 10), Shares("upsert", 10, **more)]
    with pytest.raises(DataError, match="'n' is the ordering field and part of the key"):
        stream(source, batches, ordering=("n",))
    inserts = [Shares("bulk_insert", 10), Shares("insert", 10)]
    stream(source, inserts, ordering=("n",))


def test_timestamps_at_the_end_of_time_are_refused(tmp_path: Path) -> None:
    stamps = pa.array([datetime.min, datetime.max], pa.timestamp("us"))
    pq.write_table(pa.table({"k": [1, 2], "t": stamps}), tmp_path / "x.parquet")
    rows = ParquetRows([tmp_path / "x.parquet"])
    batches = [Shares("bulk_insert", 2), Shares("upsert", 2, updates=1)]
    with pytest.raises(DataError, match="'t', the ordering field of type timestamp"):
        UpdateStream(rows, batches, key=["k"], ordering=["t"])


def test_a_column_event_ts_is_not_replaced(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "event_ts": [1, 2]}), tmp_path / "x.parquet")
    rows = ParquetRows([tmp_path / "x.parquet"])
    with pytest.raises(DataError, match="already has a column 'event_ts'"):
        UpdateStream(rows, [Shares("bulk_insert", 2)], key=["k"])


def test_a_column_of_deletes_is_not_added_twice(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], IS_DELETED: [True, False]}), tmp_path / "x.parquet")
    rows = ParquetRows([tmp_path / "x.parquet"])
    batches = [Shares("bulk_insert", 2), Shares("upsert", 2, updates=1, deletes=0.5)]
    with pytest.raises(DataError, match=f"already has a column '{IS_DELETED}'"):
        UpdateStream(rows, batches, key=["k"])
    UpdateStream(rows, batches[:1], key=["k"])
