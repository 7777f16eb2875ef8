"""Base files: footers, encodings, key order, several appends, and what a second attempt does."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import ConcurrentWrite, TableError
from serde_lab.records.schema import META_NAMES
from serde_lab.table.files.base_file import (
    BLOOM_KEY,
    BLOOM_TYPE_KEY,
    MAX_KEY,
    MIN_KEY,
    RECORD_KEY,
    BaseFileReader,
    BaseFileWriter,
    base_file_name,
    sequence_numbers,
)
from serde_lab.table.files.key_footer import BloomFilter, KeyRange
from serde_lab.table.files.log_block import decode_parquet
from serde_lab.table.files.parquet import BaseFileFormat, without_bounds
from serde_lab.table.storage.data_files import BaseFileName, LogFileName, Writing
from serde_lab.table.storage.storage import Storage

SCHEMA = pa.schema([("id", pa.string()), ("word", pa.string()), ("number", pa.int64())])
T1, T2 = "20240101000000000", "20240101000001000"


def writer(
    storage: Storage, instant: str = T1, inflight_path: str | None = None, **changes: object
) -> BaseFileWriter:
    settings: dict[str, object] = {
        "data_schema": SCHEMA,
        "partition_path": "day=1",
        "file_id": "00000000-aaaa-4000-8000-000000000000-0",
    }
    writing = Writing(instant, "3-1-0", inflight_path, task_partition=3)
    return BaseFileWriter(storage, writing, **{**settings, **changes})  # type: ignore[arg-type]


def rows(*keys: str) -> tuple[pa.Array, pa.RecordBatch]:
    data = pa.RecordBatch.from_pydict(
        {"id": list(keys), "word": ["same"] * len(keys), "number": range(len(keys))}, SCHEMA
    )
    return pa.array(keys, pa.string()), data


@pytest.mark.slow
def test_the_footer_holds_key_range_and_bloom_filter(storage: Storage) -> None:
    base = writer(storage)
    keys = ["b", "é", "a\uffff", "a😀"]
    base.append(*rows(*keys[:2]))
    base.append(*rows(*keys[2:]))
    stat = base.close()
    reader = BaseFileReader(storage, stat.path)
    footer = reader.footer
    # Java compares UTF-16: the two halves of 😀 come before U+FFFF
    assert (footer[MIN_KEY], footer[MAX_KEY]) == ("a😀", "é")
    bloom = BloomFilter.from_footer(footer[BLOOM_KEY], footer[BLOOM_TYPE_KEY], "f")
    assert bloom.may_contain(pa.array([*keys, "z"])).tolist() == [True] * 4 + [False]
    assert reader.rows == 4
    assert reader.schema.names == [*META_NAMES, *SCHEMA.names]
    assert {reader.schema.field(name).type for name in META_NAMES} == {pa.string()}
    assert stat.fileSizeInBytes == storage.size_bytes(stat.path)


@settings(max_examples=200, deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), block=st.booleans())
def test_a_damaged_page_is_never_read(
    tmp_path_factory: pytest.TempPathFactory, at: float, bit: int, block: bool
) -> None:
    """Whatever bit of a page or of its head is another one; by batches, Arrow itself passes over a page."""
    storage = Storage.open(tmp_path_factory.mktemp("page"))
    base = writer(storage)
    base.append(*rows("b", "é", "a", "c"))
    stat = base.close()
    file = Path(storage.describe(stat.path))
    whole = BaseFileReader(storage, stat.path).read()
    data = bytearray(file.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[int(at * footer)] ^= 1 << bit
    file.write_bytes(data)

    def by_batches() -> pa.Table:
        reader = BaseFileReader(storage, stat.path)
        return pa.Table.from_batches(reader.batches(), reader.schema)

    def at_once() -> pa.Table:
        return BaseFileReader(storage, stat.path).read()

    def as_block() -> pa.Table:
        return decode_parquet(pa.py_buffer(bytes(data)), "block")

    for read in (by_batches, at_once, as_block):
        with suppress(TableError):
            assert read().equals(whole)


@pytest.mark.slow
def test_a_footer_that_states_other_rows_is_refused(local: Storage) -> None:
    base = writer(local, format=BaseFileFormat(row_group_bytes=256))
    base.append(*rows("b", "é", "a"))
    stat = base.close()
    file = Path(local.describe(stat.path))
    data = file.read_bytes()
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    refused = 0
    for place in range(at, len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 2]) + data[place + 1 :])
        try:
            reader = BaseFileReader(local, stat.path)
            assert reader.rows == len(reader.read([RECORD_KEY])) == 3
        except TableError:
            refused += 1
    assert refused


def test_meta_columns_and_counts(local: Storage) -> None:
    first = writer(local)
    first.append(*rows("a", "b"))
    first.append(*rows("c"))
    old = first.close()
    assert (old.numWrites, old.numInserts, old.numUpdateWrites) == (3, 3, 0)
    assert (old.prevCommit, old.prevBaseFile) == ("null", None)
    second = writer(local, T2, previous=old.path)
    second.append(*rows("d", "a"))
    for batch in BaseFileReader(local, old.path).batches():
        second.append_carried(batch.slice(1))
    stat = second.close(updates=1, deletes=0)
    assert (stat.numWrites, stat.numInserts, stat.numUpdateWrites) == (4, 1, 1)
    assert (stat.prevCommit, stat.prevBaseFile) == (T1, old.path.rpartition("/")[2])
    found = BaseFileReader(local, stat.path).read().to_pylist()
    assert [[r[name] for name in META_NAMES[:3]] for r in found] == [
        [T2, f"{T2}_3_0", "d"],
        [T2, f"{T2}_3_1", "a"],
        [T1, f"{T1}_3_1", "b"],
        [T1, f"{T1}_3_2", "c"],
    ]
    assert {(r["_hoodie_partition_path"], r["_hoodie_file_name"]) for r in found} == {
        ("day=1", stat.path.rpartition("/")[2])
    }


def test_a_file_of_no_rows_is_a_file(local: Storage) -> None:
    stat = writer(local).close()
    assert stat.numWrites == 0
    assert BaseFileReader(local, stat.path).read().num_rows == 0
    assert MIN_KEY not in BaseFileReader(local, stat.path).footer


def test_only_repeating_columns_have_dictionaries(local: Storage) -> None:
    base = writer(local)
    base.append(*rows(*(f"key-{n:06}" for n in range(5000))))
    stat = base.close()
    group = pq.ParquetFile(local.local_path(stat.path)).metadata.row_group(0)
    encodings = {
        group.column(i).path_in_schema: set(group.column(i).encodings)
        for i in range(group.num_columns)
    }
    assert {n for n, e in encodings.items() if "RLE_DICTIONARY" in e} == {
        "_hoodie_commit_time",
        "_hoodie_partition_path",
        "_hoodie_file_name",
        "word",
    }
    assert {n for n, e in encodings.items() if "DELTA_BYTE_ARRAY" in e} == {
        "_hoodie_commit_seqno",
        "_hoodie_record_key",
    }
    assert encodings["number"] == {"RLE", "DELTA_BINARY_PACKED"}


@pytest.mark.parametrize("first", [0, 1, 9_998, 9_999, 10_000, 19_999, 123_456, (3 << 40) + 7])
@pytest.mark.parametrize("count", [1, 3, 10_001, 20_003])
def test_sequence_numbers_are_the_prefix_and_each_number(first: int, count: int) -> None:
    found = sequence_numbers("2024_3_", first, count)
    found.validate(full=True)
    assert found.to_pylist() == [f"2024_3_{n}" for n in range(first, first + count)]


def test_many_small_appends_make_one_row_group(local: Storage) -> None:
    base = writer(local)
    for n in range(50):
        base.append(*rows(f"k{n}"))
    stat = base.close()
    assert pq.ParquetFile(local.local_path(stat.path)).num_row_groups == 1


def test_rows_of_other_writers_are_made_to_fit(local: Storage) -> None:
    meta = {name: ["x"] for name in META_NAMES}
    odd = pa.RecordBatch.from_pydict({**meta, "number": pa.array([7], pa.int32()), "id": ["a"]})
    base = writer(local, T2, previous=f"f_0-1-0_{T1}.parquet")
    base.append_carried(odd)
    (found,) = BaseFileReader(local, base.close().path).read().to_pylist()
    assert (found["id"], found["number"], found["word"]) == ("a", 7, None)
    wrong = pa.RecordBatch.from_pydict({**meta, "number": ["seven"], "id": ["a"]})
    with pytest.raises(TableError, match="column 'number' is stored as string"):
        writer(local).append_carried(wrong)


FAR = [
    *(datetime(1, 1, 1), datetime(1600, 2, 29, 12, 0, 0, 1), datetime(2024, 1, 1)),
    *(datetime(2262, 4, 12), datetime(9999, 12, 31, 23, 59, 59, 999999), None),
]


@pytest.mark.parametrize("kind", ["base file", "log block"])
def test_times_of_any_year_that_others_stored_as_int96(kind: str, local: Storage) -> None:
    """Nanoseconds, as which Arrow reads them by default, hold those from 1677 to 2262 alone."""
    at = pa.array(FAR, pa.timestamp("us"))
    table = pa.table({"at": at, "s": pa.StructArray.from_arrays([at], ["at"])})
    out = pa.BufferOutputStream()
    pq.write_table(table, out, use_deprecated_int96_timestamps=True, store_schema=False)
    assert pq.ParquetFile(pa.BufferReader(out.getvalue())).schema.column(0).physical_type == "INT96"
    if kind == "base file":
        local.put_new("f.parquet", out.getvalue())
        found = BaseFileReader(local, "f.parquet").read()
        (batch,) = BaseFileReader(local, "f.parquet").batches()
        assert batch.column("at").to_pylist() == FAR
    else:
        found = decode_parquet(out.getvalue(), "a log")
    assert found["at"].to_pylist() == FAR
    assert [row["at"] for row in found["s"].to_pylist()] == FAR


def test_a_writer_whose_instant_is_gone_writes_nothing(storage: Storage) -> None:
    base = writer(storage, inflight_path=".hoodie/timeline/x.inflight")
    base.append(*rows("a"))
    with pytest.raises(ConcurrentWrite, match="not inflight any more"):
        base.close()
    assert storage.list_files() == []


def test_a_rollback_between_check_and_write_leaves_nothing(local: Storage) -> None:
    inflight = ".hoodie/timeline/x.inflight"
    local.put_new(inflight)

    class RolledBackMeanwhile(Storage):
        def put_new(self, path: str, data: object = b"") -> bool:
            done = super().put_new(path, data)  # type: ignore[arg-type]
            if path.endswith(".parquet"):
                self.delete(inflight)
            return done

    base = writer(RolledBackMeanwhile.open(local.url), inflight_path=inflight)
    base.append(*rows("a"))
    with pytest.raises(ConcurrentWrite):
        base.close()
    assert [f.path for f in local.list_files() if f.name.endswith(".parquet")] == []


def test_a_second_attempt_reports_the_file_that_stands(storage: Storage) -> None:
    first, second = writer(storage), writer(storage, format=BaseFileFormat("none", None))
    for base in (first, second):
        base.append(*rows(*(f"k{n}" for n in range(2000))))
    stat = first.close()
    again = second.close()
    assert again == stat
    assert storage.size_bytes(stat.path) == stat.fileSizeInBytes


def test_what_is_no_base_file_is_a_sentence(local: Storage) -> None:
    local.put_new("x.parquet", b"PAR1 nothing PAR1")
    with pytest.raises(TableError, match=r"x\.parquet: is not a readable Parquet file"):
        BaseFileReader(local, "x.parquet").read()
    with pytest.raises(TableError, match="is not a base file's name"):
        base_file_name("part-0.parquet")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_key_ranges_are_java_s(keys: list[str]) -> None:
    found = KeyRange()
    for start in range(0, len(keys), 3):
        found.add(pa.array(keys[start : start + 3], pa.string()))
    units = sorted(keys, key=lambda key: key.encode("utf-16-be"))
    assert (found.least, found.greatest) == (units[0], units[-1])


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (
            f"ab-0_1-2-3_{T1}.parquet",
            BaseFileName("ab-0", "1-2-3", T1),
        ),
        (f"ab-0_task_{T1}.parquet", BaseFileName("ab-0", "task", T1)),
        ("part-0000.parquet", None),
        (f".ab-0_1-2-3_{T1}.parquet", None),
        (f"ab-0_1-2-3_{T1}.parquet.crc", None),
        (f"ab-0_1-2-3_{T1}.parquet#1", None),
    ],
)
def test_names_of_base_files(name: str, parsed: BaseFileName | None) -> None:
    assert BaseFileName.parse(name) == parsed
    assert parsed is None or str(parsed) == name


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (f".ab-0_{T1}.log.1_0-2-3", LogFileName("ab-0", T1, 1, "0-2-3")),
        (f".ab-0_{T1}.log.12", LogFileName("ab-0", T1, 12, "")),
        (f".ab-0_{T1}.log.1_0-2-3.crc", None),
        (f".ab-0_{T1}.log.1_0-2-3#1", None),
        (f".ab-0_{T1}.log.1_0-2-3.cdc", None),
        (f"ab-0_{T1}.log.1_0-2-3", None),
    ],
)
def test_names_of_log_files(name: str, parsed: LogFileName | None) -> None:
    assert LogFileName.parse(name) == parsed


@pytest.mark.parametrize(
    ("format", "row_groups", "dictionaries"),
    [
        (BaseFileFormat(), 1, True),
        (BaseFileFormat(dictionaries=False), 1, False),
        (BaseFileFormat(row_group_bytes=256 * 1000), 4, True),
    ],
)
def test_dictionaries_and_row_groups_are_as_the_format_says(
    tmp_path: Path, format: BaseFileFormat, row_groups: int, dictionaries: bool
) -> None:
    storage = Storage.open(tmp_path)
    rows = 4000
    keys = pa.array([f"{n:05d}" for n in range(rows)])
    data = pa.record_batch(
        [keys, pa.array(["a", "b"] * (rows // 2)), pa.array(range(rows))], SCHEMA
    )
    written = writer(storage, format=format)
    written.append(keys, data)
    written.close()
    file = pq.ParquetFile(tmp_path / written.path)
    assert file.metadata.num_row_groups == row_groups
    words = file.metadata.row_group(0).column(SCHEMA.names.index("word") + len(META_NAMES))
    assert words.has_dictionary_page is dictionaries
    assert file.read().num_rows == rows


def test_pages_are_of_the_size_that_the_format_says(tmp_path: Path) -> None:
    rows = 60_000
    keys = pa.array([f"{n:05d}" for n in range(rows)])
    words = pa.array([f"{n * 7919 % 100_003:012d}" for n in range(rows)])
    data = pa.record_batch([keys, words, pa.array(range(rows))], SCHEMA)
    sizes = []
    for place, page_bytes in enumerate((1 << 20, 1 << 12)):
        storage = Storage.open(tmp_path / str(place))
        written = writer(storage, format=BaseFileFormat(codec="none", page_bytes=page_bytes))
        written.append(keys, data)
        written.close()
        sizes.append((tmp_path / str(place) / written.path).stat().st_size)
    # each page has a header
    assert sizes[1] > sizes[0]


def test_only_bounds_leave_a_footer() -> None:
    """In a footer of many columns, some nested, and of several row groups."""
    kinds = (pa.float64(), pa.string(), pa.list_(pa.int32()), pa.struct([("y", pa.float32())]))
    values: tuple[list[object], ...] = ([1.5, None], ["a", None], [[1], []], [{"y": 1.0}, None])
    rows = pa.table({f"c{n}": pa.array(values[n % 4] * 20, kinds[n % 4]) for n in range(40)})
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, rows.schema, bloom_filter_options={"c1": True}) as writer:
        writer.write_table(rows, row_group_size=7)
        writer.add_key_value_metadata({"key": "value" * 100})
    whole = out.getvalue()
    chosen = {"c0", "c3", "c36"}
    edited = without_bounds(whole, chosen)
    assert without_bounds(whole, ()) == whole
    before, after = (pq.read_metadata(pa.BufferReader(one)).to_dict() for one in (whole, edited))
    assert before.pop("serialized_size") > after.pop("serialized_size")
    for group in before["row_groups"]:
        for column in group["columns"]:
            if column["path_in_schema"].partition(".")[0] in chosen:
                statistics = column["statistics"]
                assert statistics["has_min_max"]
                statistics |= {"has_min_max": False, "min": None, "max": None}
    assert before == after
    assert pq.read_table(pa.BufferReader(edited)).equals(rows)


@pytest.mark.parametrize("first", [0, 1])
def test_a_column_with_a_nan_has_no_bounds_in_any_row_group(first: int, local: Storage) -> None:
    """pyarrow's maximum leaves NaN out. Readers on the JVM expect NaN there: it is their greatest value."""
    kinds = pa.struct([("y", pa.float32()), ("z", pa.int64())])
    schema = pa.schema(
        [("id", pa.string()), ("x", pa.float64()), ("s", kinds), ("w", pa.float64())]
    )
    base = writer(local, data_schema=schema, format=BaseFileFormat(row_group_bytes=256))
    for number in range(3):
        value = float("nan") if number == first else 1.0
        row = {"id": str(number), "x": value, "s": {"y": value, "z": number}, "w": 1.0}
        base.append(pa.array([str(number)]), pa.RecordBatch.from_pylist([row], schema))
    path = base.close().path
    file = pq.ParquetFile(local.local_path(path))
    assert file.metadata.num_row_groups == 3
    for group in range(3):
        columns = [
            file.metadata.row_group(group).column(i) for i in range(file.metadata.num_columns)
        ]
        without = {c.path_in_schema for c in columns if not c.statistics.has_min_max}
        assert without == {"x", "s.y", "s.z"}
        assert all(c.statistics.null_count == 0 for c in columns)
    found = BaseFileReader(local, path).read(["id", "x", "_hoodie_commit_time"])
    assert found["id"].to_pylist() == ["0", "1", "2"]
    assert str(found["x"].to_pylist()) == str(
        [float("nan") if n == first else 1.0 for n in range(3)]
    )
    assert set(found["_hoodie_commit_time"].to_pylist()) == {T1}
