"""The BLOOM index finds every stored key, none that is not stored, and reads no more than it must."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import TableError
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BaseFileWriter
from serde_lab.table.files.file_system_view import FileSlice
from serde_lab.table.index.bloom_lookup import BloomFile, BloomLookup, FooterCache, bloom_files
from serde_lab.table.storage.data_files import Writing
from serde_lab.table.storage.storage import Storage
from tests.table.made_up_tables import SMALL, LogAppender, PlainWriter

INSTANT = "20240101000000000"


def base_file(storage: Storage, file_id: str, keys: list[str], partition: str = "") -> BloomFile:
    writer = BaseFileWriter(
        storage,
        Writing(INSTANT, "0-1-0"),
        data_schema=SMALL,
        partition_path=partition,
        file_id=file_id,
    )
    rows = [{"id": key, "ts": 1, "value": "v"} for key in keys]
    writer.append(pa.array(keys, pa.string()), pa.RecordBatch.from_pylist(rows, schema=SMALL))
    return partition, file_id, writer.close().path


def find(lookup: BloomLookup, *keys: str, paths: list[str] | None = None) -> list[int]:
    found = lookup.find(pa.array(keys, pa.string()), None if paths is None else pa.array(paths))
    assert found.dtype == np.int64
    return found.tolist()


def test_keys_are_found_where_they_are_stored(storage: Storage) -> None:
    files = [base_file(storage, "f", ["b", "d"]), base_file(storage, "g", ["c", "e"])]
    lookup = BloomLookup(storage, files)
    assert find(lookup, "e", "a", "d", "c", "b", "d", "z", "cc") == [1, -1, 0, 1, 0, 0, -1, -1]
    counts = lookup.counts
    assert (counts.keys, counts.found) == (8, 5)
    # a and z are in no range; b to d lie in f's, c to e in g's, cc in both
    assert counts.in_range == 5 + 5
    # what is found in f is not looked for in g, and the filters deny c in f, and cc
    assert (counts.candidates, counts.files_read) == (5, 2)
    assert find(lookup) == []


def test_a_file_that_cannot_hold_a_key_is_not_read(local: Storage) -> None:
    lookup = BloomLookup(local, [base_file(local, "f", ["b", "x"])])
    assert find(lookup, "a", "z", "m") == [-1, -1, -1]
    assert lookup.counts.files_read == 0
    assert lookup.counts.in_range == 1


def test_footers_are_read_once(local: Storage) -> None:
    files = [base_file(local, f"f{n}", [f"k{n}"]) for n in range(3)]
    cache = FooterCache()
    for _ in range(2):
        assert find(BloomLookup(local, files, cache=cache), "k1", "k2") == [1, 2]
    assert (cache.reads, cache.hits) == (3, 3)
    little = FooterCache(max_bytes=1)
    assert find(BloomLookup(local, files, cache=little), "k0", "k1", "k2") == [0, 1, 2]
    assert find(BloomLookup(local, files, cache=little), "k0") == [0]
    assert (little.reads, little.hits) == (6, 0)


def test_partitions_keep_their_keys_apart_unless_the_index_is_global(local: Storage) -> None:
    files = [base_file(local, "f", ["a", "b"], "p"), base_file(local, "g", ["a", "c"], "q")]
    keys, paths = ["a", "a", "b", "c", "a"], ["q", "p", "q", "q", "new"]
    own = BloomLookup(local, files)
    assert find(own, *keys, paths=paths) == [1, 0, -1, 1, -1]
    everywhere = BloomLookup(local, files, is_global=True)
    assert find(everywhere, *keys, paths=paths) == [0, 0, 0, 1, 0]
    encoded = pa.array(paths).dictionary_encode()
    assert own.find(pa.array(keys), encoded).tolist() == [1, 0, -1, 1, -1]


def test_ranges_are_in_javas_order(local: Storage) -> None:
    # as Java sorts, by UTF-16 units, U+1F600 lies before U+FF5E
    low, high = "\U0001f600", "\uff5e"
    files = [base_file(local, "f", [low, high]), base_file(local, "g", ["a"])]
    lookup = BloomLookup(local, files)
    assert find(lookup, high, low, "a", "\uff5f") == [0, 0, 1, -1]
    assert find(BloomLookup(local, files), "\uff5e") == [0]


def test_ranges_by_bytes_of_utf_8_are_understood_too(local: Storage) -> None:
    """Apache Hudi writes them so where it writes Spark's rows."""
    low, high = "\uff5e", "\U0001f600"
    partition, file_id, path = base_file(local, "f", [low, high])
    stored = pq.read_table(local.open_input(path))
    footer = stored.schema.metadata
    assert (footer[b"hoodie_min_record_key"], footer[b"hoodie_max_record_key"]) == (
        high.encode(),
        low.encode(),
    )
    footer |= {b"hoodie_min_record_key": low.encode(), b"hoodie_max_record_key": high.encode()}
    plain = stored.replace_schema_metadata()
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, plain.schema, store_schema=False) as writer:
        writer.write_table(plain)
        writer.add_key_value_metadata(footer)
    local.replace(path, out.getvalue())
    lookup = BloomLookup(local, [(partition, file_id, path)])
    assert find(lookup, low, high, "a") == [0, 0, -1]


def test_a_file_without_range_or_filter_is_read(local: Storage) -> None:
    partition, file_id, path = base_file(local, "f", ["b"])
    table = pq.read_table(local.open_input(path))
    out = pa.BufferOutputStream()
    pq.write_table(table, out, store_schema=False)
    local.replace(path, out.getvalue())
    lookup = BloomLookup(local, [(partition, file_id, path)])
    assert find(lookup, "a", "b") == [-1, 0]
    assert lookup.counts.candidates == 2


@settings(max_examples=30, deadline=None)
@given(
    stored=st.lists(st.sets(st.text(max_size=3), max_size=8), max_size=4),
    asked=st.lists(st.text(max_size=3), max_size=20),
)
def test_any_keys(
    tmp_path_factory: pytest.TempPathFactory, stored: list[set[str]], asked: list[str]
) -> None:
    storage = Storage.open(tmp_path_factory.mktemp("lake"))
    taken: set[str] = set()
    homes: dict[str, int] = {}
    files = []
    for number, keys in enumerate(stored):
        own = sorted(keys - taken)
        taken |= keys
        homes |= dict.fromkeys(own, number)
        files.append(base_file(storage, f"f{number}", own))
    asked = [*asked, *list(homes)[:5]]
    assert find(BloomLookup(storage, files), *asked) == [homes.get(key, -1) for key in asked]


def test_of_a_table_the_newest_base_files_are_asked(local: Storage) -> None:
    mor = TableConfig("t", ("id",), table_type="MERGE_ON_READ", ordering_fields=("ts",))
    writer = PlainWriter(local, mor, SMALL)
    writer.upsert([{"id": "a", "ts": 1, "value": "v"}, {"id": "b", "ts": 1, "value": "v"}])
    LogAppender(writer).deletes("b").commit()
    files = bloom_files(writer.table.view().latest_file_slices())
    # b, which a log deleted, still belongs to its file group
    assert find(BloomLookup(local, files), "a", "b", "c") == [0, 0, -1]


def test_a_group_of_logs_alone_is_refused() -> None:
    with pytest.raises(TableError, match="file group f of partition 'p' has no base file"):
        bloom_files([FileSlice("p", "f", INSTANT, None)])
