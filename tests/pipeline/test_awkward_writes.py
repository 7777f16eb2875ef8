"""Rows that break assigners and replacing writes: none, one, the same key everywhere, deletes of what is
not there, late rows that would move, any text. What all readers see is worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from serde_lab.errors import DataError, OptionError, TableError
from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.pipeline.lab_table import commit_batches
from tests.pipeline.test_awkward_data import (
    ENCODE,
    ENCODED,
    HIVE,
    MOR,
    PARTITIONED,
    PLAIN,
    TEXTS,
    check,
)
from tests.pipeline.test_awkward_data import PATHS as FOLDERS

Row = tuple[str, str, int, str]
"""p, k, ts, v"""
Options = Mapping[str, str]

BASE = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.upsert.shuffle.parallelism": "3",
    "serde_lab.seed": "1",
    **PARTITIONED,
}
STATE = {"hoodie.index.type": "FLINK_STATE"}
SIMPLE = {"hoodie.index.type": "SIMPLE"}
BLOOM = {"hoodie.index.type": "BLOOM"}
STEP3 = {
    **SIMPLE,
    "serde_lab.topology": "step3",
    "write.batch.size": "0.0001",
    "write.task.max.size": "0.0002",
}
BUCKETS = {"hoodie.bucket.index.num.buckets": "3"}
LOCAL = {
    "state": SIMPLE,
    "bloom": BLOOM,
    "step1": {**SIMPLE, "serde_lab.topology": "step1"},
    "step3": STEP3,
    "compatible": {**SIMPLE, "serde_lab.topology": "compatible"},
    "bucket": BUCKETS,
}
"""Ways to write under which a key is unique in its partition only."""
GLOBAL = {
    "state": STATE,
    "state, mor": {**STATE, **MOR},
    "step3": {**STEP3, **STATE},
    "step3, mor": {**STEP3, **STATE, **MOR},
    "compatible": {"hoodie.index.type": "GLOBAL_SIMPLE", "serde_lab.topology": "compatible"},
    "bloom": {"hoodie.index.type": "GLOBAL_BLOOM"},
}
"""Ways under which a key is one row in the whole table."""


def by(ways: Iterable[str]) -> pytest.MarkDecorator:
    """Copy-on-write and merge-on-read in turn; `test_write_paths` has both of each."""
    cases = [(way, [{}, MOR][n % 2]) for n, way in enumerate(ways)]
    return pytest.mark.parametrize(("way", "kind"), cases, ids=[way for way, _ in cases])


def write(
    folder: Path,
    batches: Sequence[Sequence[Row]],
    options: Options,
    operation: str = "upsert",
    partitions: str = "",
) -> Commit:
    """One instant of so many batches."""
    storage = Storage.open(folder)
    given = {**BASE, **options, "hoodie.datasource.write.operation": operation}
    if operation.startswith("insert_overwrite"):
        given["hoodie.combine.before.insert"] = "true"
    if partitions:
        given["hoodie.datasource.write.partitions.to.delete"] = partitions
    stored = HoodieTable.open(storage).config if HoodieTable.exists(storage) else None
    prepared = PreparedWrite.of(storage, PLAIN, parse_options(given, stored))
    exchanges = [InProcessExchange([[_batch(rows)], [], [_batch(())]]) for rows in batches]
    if len(exchanges) > 1:
        return commit_batches(prepared, exchanges)
    return prepared.commit(exchanges[0] if exchanges else InProcessExchange([]))


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    named = [dict(zip(PLAIN.names, row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(named, schema=PLAIN)


def sees(folder: Path, rows: Sequence[Row]) -> None:
    """All readers see `rows`, and the doctor finds nothing."""
    check(folder, [dict(zip(PLAIN.names, row, strict=True)) for row in rows], PLAIN)


@pytest.mark.slow
@by(LOCAL)
def test_no_row_and_one_row(way: str, kind: Options, tmp_path: Path) -> None:
    options = {**LOCAL[way], **kind}
    write(tmp_path, [[]], options)
    sees(tmp_path, [])
    write(tmp_path, [[("x", "a", 1, "1")]], options)
    write(tmp_path, [[]], options)
    write(tmp_path, [[("x", "absent", 0, "")]], options, "delete")
    write(tmp_path, [[]], options, "delete")
    sees(tmp_path, [("x", "a", 1, "1")])
    write(tmp_path, [[("x", "a", 2, "2")]], options)
    sees(tmp_path, [("x", "a", 2, "2")])
    write(tmp_path, [[("x", "a", 0, "")]], options, "delete")
    sees(tmp_path, [])
    write(tmp_path, [[("x", "a", 3, "3")]], options)
    sees(tmp_path, [("x", "a", 3, "3")])
    # an overwrite by nothing: of the partitions that its rows name, which is none; or of all
    write(tmp_path, [[]], options, "insert_overwrite")
    sees(tmp_path, [("x", "a", 3, "3")])
    write(tmp_path, [[]], options, "insert_overwrite_table")
    sees(tmp_path, [])
    write(tmp_path, [[("x", "a", 1, "4")]], options)
    sees(tmp_path, [("x", "a", 1, "4")])


@pytest.mark.slow
@pytest.mark.parametrize("way", GLOBAL)
def test_a_key_of_all_partitions_is_one_row_under_a_global_index(way: str, tmp_path: Path) -> None:
    options = GLOBAL[way]
    everywhere = [(path, key, number, path) for key in "ab" for number, path in enumerate("zyxw")]
    write(tmp_path, [everywhere], options)
    sees(tmp_path, [("w", "a", 3, "w"), ("w", "b", 3, "w")])
    # late ones move nothing, an equal one does
    write(tmp_path, [[("x", "a", 2, "late"), ("y", "b", 3, "tie")]], options)
    sees(tmp_path, [("w", "a", 3, "w"), ("y", "b", 3, "tie")])
    # away and back within one batch, and to where it was once
    write(tmp_path, [[("q", "a", 9, "away"), ("w", "a", 10, "back"), ("w", "b", 8, "b")]], options)
    sees(tmp_path, [("w", "a", 10, "back"), ("w", "b", 8, "b")])
    # a delete finds the key wherever it is said to be
    write(tmp_path, [[("nowhere", "a", 0, ""), ("w", "absent", 0, "")]], options, "delete")
    sees(tmp_path, [("w", "b", 8, "b")])
    write(tmp_path, [[("x", "a", 11, "anew")]], options)
    sees(tmp_path, [("w", "b", 8, "b"), ("x", "a", 11, "anew")])


@pytest.mark.slow
@pytest.mark.parametrize("way", GLOBAL)
def test_a_record_moves_from_batch_to_batch_of_one_instant(way: str, tmp_path: Path) -> None:
    options = GLOBAL[way]
    write(tmp_path, [[("x", "a", 1, "1"), ("x", "b", 1, "1")]], options)
    batches = [
        [("y", "a", 2, "2"), ("x", "c", 2, "2")],
        [("x", "a", 3, "3"), ("y", "c", 3, "3")],
        [("y", "a", 2, "late"), ("z", "c", 4, "4"), ("x", "b", 0, "late")],
    ]
    write(tmp_path, batches, options)
    assert len(HoodieTable.open(Storage.open(tmp_path)).timeline().completed()) == 2
    expected = [("x", "a", 3, "3"), ("x", "b", 1, "1"), ("z", "c", 4, "4")]
    sees(tmp_path, expected)
    write(tmp_path, [[("x", "c", 5, "5")]], options)
    sees(tmp_path, [*expected[:2], ("x", "c", 5, "5")])


@by(LOCAL)
def test_a_key_of_all_partitions_is_a_row_in_each(way: str, kind: Options, tmp_path: Path) -> None:
    options = {**LOCAL[way], **kind}
    write(tmp_path, [[(path, "a", 1, path) for path in "wxyz"]], options)
    write(tmp_path, [[("w", "a", 2, "new"), ("x", "a", 0, "late")]], options)
    write(tmp_path, [[("y", "a", 0, ""), ("v", "a", 0, "")]], options, "delete")
    sees(tmp_path, [("w", "a", 2, "new"), ("x", "a", 1, "x"), ("z", "a", 1, "z")])


@by(["state", "bloom", "step3"])
def test_any_text_is_a_key_to_an_assigner(way: str, kind: Options, tmp_path: Path) -> None:
    options = {**LOCAL[way], **kind, "serde_lab.strategy": "internal_row"}
    keys = [*TEXTS[1:], " ", "k:v", "x\0k", "null", "__null__", "__empty__", "x" * 5_000]
    write(tmp_path, [[("x", key, 1, "1") for key in keys]], options)
    # what joins path and key must not take one for another
    write(tmp_path, [[("xk", key, 1, "1") for key in keys[:3]]], options)
    commit = write(tmp_path, [[("x", key, 2, "2") for key in keys[::2]]], options)
    if not kind:
        assert (commit.rows_inserted, commit.rows_updated) == (0, len(keys[::2]))
    write(tmp_path, [[("x", key, 0, "") for key in keys[1::4]]], options, "delete")
    left = [("x", key, 2 - n % 2, str(2 - n % 2)) for n, key in enumerate(keys) if n % 4 != 1]
    sees(tmp_path, [*left, *[("xk", key, 1, "1") for key in keys[:3]]])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["state", "bloom", "step1", "step3"])
def test_partitions_of_strange_names_are_assigned_and_replaced(way: str, tmp_path: Path) -> None:
    options = {**LOCAL[way], ENCODE: "true", HIVE: "true"}
    values = [*FOLDERS, *ENCODED, ".", "..", ".hoodie"]
    write(tmp_path, [[(value, "k", 1, value) for value in values]], options)
    write(
        tmp_path, [[(value, "k", 2, value) for value in values[::2]]], options, "insert_overwrite"
    )
    write(tmp_path, [[(value, "l", 1, value) for value in values[1::2]]], options)
    expected = [(value, "k", 2, value) for value in values[::2]]
    for name in ("k", "l"):
        expected += [(value, name, 1, value) for value in values[1::2]]
    sees(tmp_path, expected)


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
@pytest.mark.parametrize("key", [None, ""])
def test_a_row_without_a_key_is_refused_by_every_operation(
    key: str | None, operation: str, tmp_path: Path
) -> None:
    write(tmp_path, [[("x", "a", 1, "1")]], SIMPLE)
    rows = [("x", "b", 1, "1"), ("x", key, 1, "1")]
    with pytest.raises(DataError, match="record key column 'k' is null or empty in 1 rows"):
        write(tmp_path, [rows], SIMPLE, operation)  # type: ignore[list-item]
    assert not HoodieTable.open(Storage.open(tmp_path)).timeline().pending()
    sees(tmp_path, [("x", "a", 1, "1")])


@pytest.mark.slow
@by(["state", "bloom", "step1", "step3", "compatible"])
def test_file_groups_of_a_few_rows_each(way: str, kind: Options, tmp_path: Path) -> None:
    """Many file groups a task, each full at once."""
    sizes = {
        "hoodie.parquet.max.file.size": "1",
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.copyonwrite.insert.auto.split": "false",
        "hoodie.copyonwrite.insert.split.size": "2",
    }
    options = {**LOCAL[way], **kind, **sizes}
    rows = [("xy"[number % 2], f"k{number}", 1, "1") for number in range(60)]
    commit = write(tmp_path, [rows], options)
    assert len(commit.stats) >= 30
    assert max(stat.numWrites for stat in commit.stats) == 2
    later = [(p, k, 2, "2") for p, k, _, _ in rows[::3]]
    write(tmp_path, [later], options)
    gone = rows[1::3]
    write(tmp_path, [gone], options, "delete")
    sees(tmp_path, [*later, *rows[2::3]])


@by(["state", "bloom", "step3", "bucket"])
def test_inserts_after_overwrites_of_the_same_partition(
    way: str, kind: Options, tmp_path: Path
) -> None:
    options = {**LOCAL[way], **kind}
    write(tmp_path, [[("x", key, 1, "1") for key in "abc"] + [("y", "a", 1, "1")]], options)
    for number in range(2, 5):
        write(tmp_path, [[("x", f"o{number}", number, "o")]], options, "insert_overwrite")
        # the bucket index takes no insert
        then = "upsert" if way == "bucket" else "insert"
        write(tmp_path, [[("x", f"i{number}", number, "i")]], options, then)
    sees(tmp_path, [("x", "i4", 4, "i"), ("x", "o4", 4, "o"), ("y", "a", 1, "1")])
    # a key that was replaced away is new again, however late
    write(tmp_path, [[("x", "a", 0, "anew"), ("x", "o4", 3, "late")]], options)
    sees(
        tmp_path,
        [("x", "a", 0, "anew"), ("x", "i4", 4, "i"), ("x", "o4", 4, "o"), ("y", "a", 1, "1")],
    )


@by(["state", "bloom", "step1", "bucket"])
def test_inserts_after_partitions_were_deleted_by_wildcard(
    way: str, kind: Options, tmp_path: Path
) -> None:
    options = {**LOCAL[way], **kind}
    paths = ["2024-01", "2024-02", "2025-01", "x.24-01", "[2]"]
    rows = [(path, "a", 1, "1") for path in paths]
    write(tmp_path, [rows], options)
    commit = write(tmp_path, [], options, "delete_partition", "2024*,[2]")
    assert commit.action == "replacecommit"
    sees(tmp_path, rows[2:4])
    then = "upsert" if way == "bucket" else "insert"
    write(tmp_path, [[("2024-01", "a", 0, "anew")]], options, then)
    write(tmp_path, [[("2024-01", "b", 0, "anew"), ("[2]", "a", 0, "anew")]], options)
    anew = [("2024-01", "a", 0, "anew"), ("2024-01", "b", 0, "anew"), ("[2]", "a", 0, "anew")]
    sees(tmp_path, [*rows[2:4], *anew])
    # what is there and what is not
    write(tmp_path, [], options, "delete_partition", "*-01,never")
    sees(tmp_path, anew[2:])
    write(tmp_path, [], options, "delete_partition", "*")
    sees(tmp_path, [])
    write(tmp_path, [rows], options)
    sees(tmp_path, rows)


@pytest.mark.parametrize("way", ["bucket", "bloom"])
def test_a_partition_is_deleted_by_its_own_name(way: str, tmp_path: Path) -> None:
    """Blanks are part of it, as in Apache Hudi; a name that is no partition deletes nothing."""
    names = [" x", "x", "x ", " ", "a,b", "a%2Ab", "aXb", "a.b", "é\u3000", "\u3000", "%"]
    left = {name: (name, "a", 1, "1") for name in names}
    write(tmp_path, [[*left.values()]], LOCAL[way])
    for asked, gone in (
        (" x", [" x"]),
        (" ,,nowhere,", [" "]),
        ("b, x", []),
        ("a%2Ab", ["a%2Ab"]),
        ("a?b,a,b", []),
        ("\u3000,%", ["\u3000", "%"]),
        ("a*b", ["a,b", "aXb", "a.b"]),
        ("* ", ["x "]),
    ):
        write(tmp_path, [], LOCAL[way], "delete_partition", asked)
        for name in gone:
            del left[name]
        sees(tmp_path, [*left.values()])
    with pytest.raises(OptionError, match="is missing; it lists the partition paths"):
        write(tmp_path, [], LOCAL[way], "delete_partition", ",,")
    with pytest.raises(OptionError, match="Apache Hudi would read %2A as"):
        write(tmp_path, [], LOCAL[way], "delete_partition", "a%2Ab")


NO_TEXT = pa.array([b"fine", None, b"a\xff", b"b"], pa.binary()).view(pa.string())
NO_TEXTS = {
    "v": (NO_TEXT, r"'v' holds text that is not UTF-8: b'a\\xff'$"),
    "k": (
        pa.array([b"a", b"b", b"\xc3", b"c"], pa.binary()).view(pa.string()),
        r"'k' .*: b'\\xc3'$",
    ),
    "p": (NO_TEXT.dictionary_encode(), r"'p' holds text"),
    "x": (pa.StructArray.from_arrays([NO_TEXT], ["s"]), r"'x' holds text that is not UTF-8$"),
}


@pytest.mark.parametrize("way", ["bucket", "bloom", "bulk"])
@pytest.mark.parametrize("name", NO_TEXTS)
def test_text_that_is_not_utf_8_is_refused_by_its_column(
    name: str, way: str, tmp_path: Path
) -> None:
    bad, said = NO_TEXTS[name]
    columns = dict(
        zip(PLAIN.names, _batch([("x", k, 1, "1") for k in "abcd"]).columns, strict=True)
    )
    batch = pa.RecordBatch.from_pydict({**columns, name: bad})
    options = {**BASE, **LOCAL.get(way, BLOOM)}
    if way == "bulk":
        options["hoodie.datasource.write.operation"] = "bulk_insert"
    schema = batch.schema if name == "x" else PLAIN
    prepared = PreparedWrite.of(Storage.open(tmp_path), schema, parse_options(options))
    with pytest.raises(DataError, match=f"^column {said}"):
        prepared.commit(InProcessExchange([[batch.slice(0, 2), batch.slice(1)]]))


@pytest.mark.parametrize("version", ["9", "6"])
def test_a_write_that_fails_makes_no_table(version: str, tmp_path: Path) -> None:
    """So that the corrected one may state another table."""
    ring = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
    for options in (BUCKETS, {**BUCKETS, **MOR}, {**BUCKETS, **ring}):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
        good, bad = [("x", key, 1, "1") for key in "abc"], [("x", "", 1, "1")]
        wrong = {**options, "hoodie.write.table.version": version}
        with pytest.raises(DataError, match="null or empty"):
            write(folder, [[*good, *bad]], wrong)
        assert not HoodieTable.exists(Storage.open(folder))
        found = [path for path in folder.rglob("*") if path.is_file()]
        assert [path for path in found if ".locks" not in path.parts] == [folder / "notes.txt"]
        write(folder, [good], {"hoodie.bucket.index.num.buckets": "2"})
        sees(folder, good)
        with pytest.raises(DataError, match="null or empty"):
            write(folder, [bad], {})
        sees(folder, good)


def test_blanks_are_part_of_a_delete_marker(tmp_path: Path) -> None:
    value = PLAIN.names[-1]
    options = {
        **LOCAL["bucket"],
        "hoodie.payload.delete.field": value,
        "hoodie.payload.delete.marker": " D",
    }
    write(tmp_path, [[("x", key, 1, "1") for key in "abc"]], options)
    write(tmp_path, [[("x", "a", 2, " D"), ("x", "b", 2, "D"), ("x", "c", 2, "D ")]], options)
    sees(tmp_path, [("x", "b", 2, "D"), ("x", "c", 2, "D ")])


@pytest.mark.parametrize(
    "name", ["hoodie.table.name", "hoodie.index.type", "serde_lab.strategy", "serde_lab.strategy.x"]
)
def test_none_is_no_text(name: str) -> None:
    with pytest.raises(OptionError, match=f"^{name} is None, expected a value"):
        parse_options({**BASE, name: None})


@pytest.mark.parametrize("name", ["hoodie.bucket.index.num.buckets", "hoodie.write.table.version"])
def test_zero_is_not_the_default(name: str) -> None:
    with pytest.raises(OptionError, match=f"^{name} is '0', expected an integer from 1"):
        parse_options({**BASE, name: "0"})


@pytest.mark.parametrize(
    ("codec", "level", "words"),
    [
        ("zstd", 0, "is '0', expected an integer from 1"),
        ("zstd", 23, "is 23, expected 1 to 22 for zstd"),
        ("gzip", 10, "is 10, expected 1 to 9 for gzip"),
        ("snappy", 1, "is 1, but the codec snappy has no levels"),
        ("uncompressed", 1, "has no levels"),
    ],
)
def test_a_level_that_the_codec_has_not(codec: str, level: int, words: str) -> None:
    asked = {"hoodie.parquet.compression.codec": codec, "serde_lab.codec_level": level}
    with pytest.raises(OptionError, match=words):
        parse_options({**BASE, **asked})
    for known, most in (("zstd", 22), ("gzip", 9)):
        asked = {"hoodie.parquet.compression.codec": known, "serde_lab.codec_level": most}
        assert parse_options({**BASE, **asked}).file_format.level == most


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_partitions_to_delete_are_for_one_operation(operation: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is for delete_partition, but the operation is"):
        write(tmp_path, [[("x", "a", 1, "1")]], LOCAL["bloom"], operation, " ")


def test_partitions_are_deleted_under_every_index(tmp_path: Path) -> None:
    """All options that a write of rows needs."""
    global_bloom = {"hoodie.index.type": "GLOBAL_BLOOM", **MOR}
    rows = [("x", "a", 1, "1"), ("y", "b", 1, "1")]
    write(tmp_path, [rows], {**global_bloom, "serde_lab.topology": "state"})
    write(tmp_path, [], global_bloom, "delete_partition", "x")
    sees(tmp_path, rows[1:])


@pytest.mark.parametrize("operation", ["delete", "delete_partition"])
def test_nothing_is_deleted_of_no_table(operation: str, tmp_path: Path) -> None:
    batches = [[("x", "a", 0, "")]] if operation == "delete" else []
    with pytest.raises(TableError):
        write(tmp_path, batches, STATE, operation, "x" * (operation == "delete_partition"))
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("way", [*LOCAL, "global"])
def test_deletes_of_absent_keys_write_no_data(way: str, tmp_path: Path) -> None:
    options = {**LOCAL, "global": STATE}[way]
    write(tmp_path, [[("x", f"k{n}", 1, "1") for n in range(20)]], options)
    absent = [("x", f"k{n}x", 0, "") for n in range(50)] + [("nowhere", "k1x", 0, "")]
    commit = write(tmp_path, [[*absent, *absent]], options, "delete")
    assert commit.rows_deleted == 0
    if way != "bucket":
        assert commit.stats == ()
    sees(tmp_path, [("x", f"k{n}", 1, "1") for n in range(20)])


def test_a_bucket_is_made_of_the_keys_own_fields() -> None:
    """Python's hash knows a key alone, and Spark's own columns any field."""
    options = {**BASE, **LOCAL["bucket"], "hoodie.bucket.index.hash.field": "v"}
    with pytest.raises(
        OptionError, match=r"hash\.field has 'v', which is not in the record key, k"
    ):
        parse_options(options)
    without = {key: text for key, text in options.items() if "num.buckets" not in key}
    assert parse_options(without | BLOOM).table.index_type == "BLOOM"


@pytest.mark.parametrize(
    ("name", "older", "one", "other"),
    [
        ("hoodie.clean.commits.retained", "hoodie.cleaner.commits.retained", "7", "3"),
        (
            "hoodie.clean.failed.writes.policy",
            "hoodie.cleaner.policy.failed.writes",
            "EAGER",
            "LAZY",
        ),
    ],
)
def test_two_names_of_an_option_must_agree(name: str, older: str, one: str, other: str) -> None:
    """Else one of them would be ignored."""
    options = {**BASE, **LOCAL["bucket"]}
    with pytest.raises(OptionError, match=f"{older} is '{other}', but .* is '{one}'"):
        parse_options({**options, name: one, older: other})
    both = parse_options({**options, name: one, older: one.lower()})
    assert both == parse_options({**options, older: one})


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}, "only BUCKET has engines"),
        ({"hoodie.bucket.index.num.buckets": "4"}, "need each other; found SIMPLE with 4"),
        ({"hoodie.bucket.index.partition.expressions": "x,2"}, "needs the bucket index"),
        ({"index.global.enabled": "false"}, "only for INMEMORY and FLINK_STATE"),
    ],
)
def test_an_index_that_cannot_be_is_refused_in_a_table_of_hudis_too(
    stated: dict[str, str], says: str
) -> None:
    """The first of these would give every key to a ring that knows no stored file group, and double it."""
    options = {**BASE, **SIMPLE}
    as_by_hudi = replace(parse_options(options).table, index_type="")
    assert parse_options(options, as_by_hudi).table.index_type == "SIMPLE"
    with pytest.raises(OptionError, match=says):
        parse_options({**options, **stated}, as_by_hudi)
