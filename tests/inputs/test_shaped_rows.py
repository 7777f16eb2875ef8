"""Made-up rows keep what their shape promises, and are the same in any blocks and at any time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from serde_lab.errors import UsageError
from serde_lab.inputs.parts import checksum
from serde_lab.inputs.shaped_rows import (
    HOT_BUCKETS,
    Keys,
    Nesting,
    Shape,
    innermost_values,
    shaped_rows,
    write_rows,
)
from serde_lab.table.index.bucket_index import bucket_ids

ROWS = 4000


def made(shape: Shape) -> pa.Table:
    table = pa.Table.from_batches(list(shaped_rows(shape)))
    table.validate(full=True)
    return table.combine_chunks()


def payload(table: pa.Table) -> list[pa.ChunkedArray]:
    return [table.column(name) for name in table.column_names if name.startswith("c")]


def test_rows_are_the_same_every_time_and_others_with_another_seed() -> None:
    shape = Shape(ROWS, nesting="maps", decimals=0.1)
    assert checksum(made(shape)) == checksum(made(shape))
    assert checksum(made(replace(shape, seed=2))) != checksum(made(shape))


@pytest.mark.parametrize("nesting", ["structs", "lists", "maps"])
def test_rows_do_not_depend_on_how_many_are_made_with_them(nesting: Nesting) -> None:
    few = Shape(300, nesting=nesting, partitions=5, keys="five")
    many = replace(few, rows=ROWS)
    assert made(many).slice(0, 300).equals(made(few))


def test_a_checksum_is_that_of_any_other_machine() -> None:
    shape = Shape(1000, nesting="structs", decimals=0.1, keys="uuid", partitions=3)
    assert checksum(made(shape)) == (
        "sha256:8c929b6fe2ee0a95ea46c4897d3be018841adb9b7d21c79eb47e5af78f25f685"
    )


@pytest.mark.parametrize("columns", [5, 20, 300])
def test_there_are_as_many_columns_as_asked_for(columns: int) -> None:
    assert made(Shape(50, columns=columns)).num_columns == columns
    assert made(Shape(50, columns=columns, partitions=2)).num_columns == columns
    assert made(Shape(50, columns=columns + 3, keys="five")).num_columns == columns + 3


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_share_of_strings(share: float) -> None:
    columns = payload(made(Shape(10, columns=21, strings=share)))
    assert sum(pa.types.is_string(column.type) for column in columns) == share * 20


@pytest.mark.parametrize("mean", [1, 8, 80, 2000])
def test_strings_have_the_wanted_bytes_on_average(mean: int) -> None:
    strings = made(Shape(ROWS, columns=3, strings=0.5, string_bytes=mean, nulls=0)).column("c000")
    lengths = pc.binary_length(strings).to_numpy()
    assert abs(lengths.mean() / mean - 1) < 0.03
    assert lengths.min() >= mean - mean // 2
    assert lengths.max() <= mean + mean // 2
    assert mean == 1 or lengths.max() > 1.4 * mean > 2 * lengths.min()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.95])
def test_the_share_of_nulls(share: float) -> None:
    table = made(Shape(ROWS, nulls=share, nesting="lists", decimals=0.2, partitions=4))
    nulls = [column.null_count / ROWS for column in payload(table)]
    assert abs(float(np.mean(nulls)) - share) < 0.01
    assert max(abs(one - share) for one in nulls) < 0.04
    assert not table.column("id").null_count
    assert not table.column("part").null_count


def test_decimals_have_38_digits_of_either_sign() -> None:
    columns = payload(made(Shape(ROWS, decimals=0.5, strings=0, nulls=0)))
    decimals = [column for column in columns if pa.types.is_decimal(column.type)]
    assert len(decimals) == 10
    assert {column.type for column in decimals} == {pa.decimal128(38, 10)}
    digits = Counter(len(value.as_tuple().digits) for value in decimals[0].to_pylist())
    assert max(digits) == 38
    assert digits[38] / ROWS > 0.85
    negative = sum(value < 0 for value in decimals[0].to_pylist())
    assert abs(negative / ROWS - 0.5) < 0.05


@pytest.mark.parametrize(
    ("nesting", "wanted"),
    [
        (
            "structs",
            pa.struct(
                [("id", pa.int64()), ("inner", pa.struct([("text", pa.string()), ("amount", pa.float64())]))]
            ),
        ),
        ("lists", pa.list_(pa.list_(pa.int64()))),
        ("maps", pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))),
    ],
)  # fmt: skip
def test_nesting_is_two_deep(nesting: Nesting, wanted: pa.DataType) -> None:
    table = made(Shape(ROWS, columns=11, strings=0, nulls=0, nesting=nesting, nested=0.5))
    nested = [column for column in payload(table) if pa.types.is_nested(column.type)]
    assert [column.type for column in nested] == [wanted] * 5
    values = nested[0].to_pylist()
    if nesting == "structs":
        assert len({value["inner"]["amount"] for value in values}) == ROWS
        return
    assert {len(value) for value in values} == {1, 2, 3}
    inner = [one if nesting == "lists" else one[1] for value in values for one in value]
    assert {len(one) for one in inner} == {1, 2, 3}
    if nesting == "maps":
        assert all(len({key for key, _ in value}) == len(value) for value in (*values, *inner))


def test_the_innermost_values_are_counted() -> None:
    maps = pa.array(
        [[("a", [("b", 1), ("c", 2)])], None, [("d", [("e", 3)]), ("f", [])]],
        pa.map_(pa.string(), pa.map_(pa.string(), pa.int64())),
    )
    # one outer key, two inner keys and two items, and so on
    assert innermost_values(maps) == 5 + 4
    assert innermost_values(maps.slice(1)) == 4
    assert innermost_values(maps.slice(0, 1)) == 5
    lists = pa.array([[[1, 2], [3]], None, [[], [None]]], pa.list_(pa.list_(pa.int64())))
    assert innermost_values(lists) == 4
    assert innermost_values(lists.slice(1)) == 1
    structs = pa.array([{"a": 1, "b": [1, 2]}, {"a": None, "b": []}])
    assert innermost_values(structs) == 4
    assert innermost_values(structs.slice(1)) == 1


@pytest.mark.parametrize("keys", ["long", "uuid", "five"])
def test_keys_are_unique(keys: Keys) -> None:
    shape = Shape(ROWS, keys=keys)
    table = made(shape).select(list(shape.key))
    assert table.group_by(table.column_names).aggregate([]).num_rows == ROWS
    if keys == "uuid":
        assert {str(UUID(text)) for text in table.column("id").to_pylist()[:100]} == set(
            table.column("id").to_pylist()[:100]
        )


def test_partitions_have_about_equal_shares() -> None:
    rows = Counter(made(Shape(ROWS, columns=4, partitions=20)).column("part").to_pylist())
    assert len(rows) == 20
    assert max(rows.values()) < 1.5 * ROWS / 20


@pytest.mark.parametrize("buckets", [2, 8, HOT_BUCKETS])
def test_half_of_the_keys_are_in_the_hot_bucket(buckets: int) -> None:
    keys = made(Shape(ROWS, columns=3, hot_bucket=True)).column("id")
    found = bucket_ids(keys.combine_chunks().cast(pa.string()), ["id"], ["id"], buckets)
    # every other key, and a share of the others
    assert not found[1::2].any()
    assert abs(np.count_nonzero(found == 0) / ROWS - (0.5 + 0.5 / buckets)) < 0.03


def test_blocks_are_bounded_in_bytes() -> None:
    large = Shape(ROWS, columns=12, strings=1, string_bytes=10_000)
    batches = list(shaped_rows(large))
    assert len(batches) > 1
    assert max(batch.nbytes for batch in batches) < 64 << 20


def test_rows_are_written_once(tmp_path: Path) -> None:
    shape = Shape(ROWS, columns=3)
    first, reused = write_rows(shape, tmp_path)
    assert (first.rows, reused) == (ROWS, False)
    assert first.read(0, ROWS).combine_chunks().equals(made(shape))
    again, reused = write_rows(shape, tmp_path)
    assert (again.files, reused) == (first.files, True)
    other, _ = write_rows(replace(shape, seed=2), tmp_path)
    assert other.files != first.files


def test_a_foreign_file_in_the_folder_stays(tmp_path: Path) -> None:
    shape = Shape(10, columns=3)
    folder = tmp_path / shape.folder_name
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"foreign file 'notes\.txt'"):
        write_rows(shape, tmp_path)
    assert (folder / "notes.txt").read_text() == "mine"
