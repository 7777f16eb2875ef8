"""Input batches: made once, kept by what decides them, and refused by column and row count."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import DataError, LabError, SchemaError, UsageError
from serde_lab.inputs.parts import MANIFEST, Part, checksum, write_parts
from serde_lab.lab.inputs import batches
from serde_lab.lab.inputs.prepared import PreparedInputs, default_cache, prepare_inputs
from serde_lab.lab.inputs.user_files import check_sources, different_keys, find_files, repeated_keys
from serde_lab.scenario.loading import load_scenario, parse_scenario
from serde_lab.scenario.model import ParquetData, Scenario
from tests.lab.small_scenario import content, source, toml

ROWS = 100


def scenario(data: Mapping[str, Any], *batches: Mapping[str, Any], setups: int = 1) -> Scenario:
    return parse_scenario(
        {
            "name": "s",
            "title": "t",
            "question": "q",
            "data": {"input_partitions": 3, **data},
            "setup": list(batches[:setups]),
            "commit": list(batches[setups:]),
            "arm": [{"name": "a", "strategy": "pickle"}],
        }
    )


TPCH = {"source": "tpch", "table": "orders", "scale_factor": 0.001}
BULK = {"operation": "bulk_insert"}
UPSERT = {"share": 0.1, "updates": 0.5}


def orders(**changes: Any) -> pa.Table:
    columns: dict[str, Any] = {
        "id": pa.array(range(ROWS), pa.int64()),
        "country": [f"c{i % 3}" for i in range(ROWS)],
        "updated": pa.array(
            [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(ROWS)], pa.timestamp("us")
        ),
        "text": pa.array([None if i % 5 == 0 else f"t{i}" for i in range(ROWS)], pa.string_view()),
    }
    return pa.table({**columns, **changes})


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has orders already, since the generator takes a second to start."""
    cache = tmp_path_factory.mktemp("generated")
    prepare_inputs(scenario(TPCH, BULK, UPSERT), cache)
    return cache / "tpch"


@pytest.fixture
def cache(tmp_path: Path, generated: Path) -> Path:
    shutil.copytree(generated, tmp_path / "cache" / "tpch")
    return tmp_path / "cache"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of two files, and a mark that Spark leaves behind."""
    folder = tmp_path / "own"
    folder.mkdir()
    table = orders()
    pq.write_table(table.slice(60), folder / "b.parquet")
    pq.write_table(table.slice(0, 60), folder / "a.parquet")
    (folder / "_SUCCESS").write_text("")
    (folder / "_hidden.parquet").write_text("no parquet")
    return folder


def own_data(path: Path | str, **more: Any) -> dict[str, Any]:
    return {"source": "parquet", "path": str(path), "key": "id", "ordering": "updated", **more}


def read(inputs: PreparedInputs, number: int) -> pa.Table:
    one = (*inputs.setups, *inputs.commits)[number]
    return pa.concat_tables(pq.read_table(file) for file in one.files)


@pytest.mark.slow
def test_batches_of_tpch(tmp_path: Path) -> None:
    said: list[str] = []
    inputs = prepare_inputs(scenario(TPCH, BULK, UPSERT), tmp_path, said.append)
    (setup,), (commit,) = inputs.setups, inputs.commits
    assert (setup.operation, setup.rows, commit.operation, commit.rows) == (
        "bulk_insert", 1500, "upsert", 150,
    )  # fmt: skip
    assert [pq.read_metadata(file).num_rows for file in commit.files] == [50, 50, 50]
    assert inputs.record_schema.record_key == ("o_orderkey",)
    assert inputs.record_schema.ordering == ("event_ts",)
    assert inputs.record_schema.data == read(inputs, 0).schema.remove_metadata()
    assert all(field.metadata is None for field in inputs.record_schema.data)
    stored = set(read(inputs, 0)["o_orderkey"].to_pylist())
    assert sum(key in stored for key in read(inputs, 1)["o_orderkey"].to_pylist()) == 75
    assert inputs.checksums == {"setup-1": setup.content, "commit-1": commit.content}
    assert any(str(inputs.folder) in sentence for sentence in said)
    assert any(sentence.startswith("commit.1: 150 rows") for sentence in said)


@pytest.mark.slow
def test_batches_are_kept_and_made_again_when_asked_otherwise(cache: Path) -> None:
    one = scenario(TPCH, BULK, UPSERT)
    first = prepare_inputs(one, cache)
    again = prepare_inputs(one, cache)
    assert not first.reused
    assert again.reused
    assert again.checksums == first.checksums
    assert again.record_schema == first.record_schema
    other = prepare_inputs(scenario({**TPCH, "seed": 2}, BULK, UPSERT), cache)
    assert not other.reused
    assert other.folder != first.folder
    assert other.checksums["commit-1"] != first.checksums["commit-1"]


@pytest.mark.slow
def test_factors_that_differ_in_their_last_digits_share_no_table(tmp_path: Path) -> None:
    for factor in (0.001, 0.001000001):
        data = {**TPCH, "scale_factor": factor}
        assert prepare_inputs(scenario(data, BULK, UPSERT), tmp_path).setups[0].rows == 1500


def test_scenarios_that_ask_for_the_same_rows_share_them(cache: Path) -> None:
    first = prepare_inputs(scenario(TPCH, BULK, UPSERT), cache)
    content = scenario(TPCH, BULK, UPSERT).to_json() | {"name": "twin", "table": {"buckets": 2}}
    twin = prepare_inputs(parse_scenario(content), cache)
    assert twin.reused
    assert twin.folder == first.folder


@pytest.mark.parametrize("damage", ["manifest", "part", "cut"])
def test_a_unfinished_batch_is_made_again(cache: Path, damage: str) -> None:
    one = scenario(TPCH, BULK, UPSERT)
    first = prepare_inputs(one, cache)
    commit = first.commits[0]
    if damage == "manifest":
        (commit.folder / MANIFEST).unlink()
        (commit.folder / "_unfinished.json").write_text("{}")
    elif damage == "part":
        commit.files[1].unlink()
    else:
        commit.files[1].write_bytes(commit.files[1].read_bytes()[:100])
    again = prepare_inputs(one, cache)
    assert not again.reused
    assert again.checksums == first.checksums
    assert checksum(read(again, 1)) == checksum(read(first, 1))


@pytest.mark.slow
def test_an_interrupted_preparation_leaves_nothing_that_is_read(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(table: pa.Table) -> pa.Table:
        raise KeyboardInterrupt

    def cut(folder: Path, tables: Iterable[pa.Table], *others: Any) -> Iterator[Part]:
        tables = map(interrupt, tables) if folder.name == "commit-1" else tables
        return write_parts(folder, tables, *others)

    one = scenario(TPCH, BULK, UPSERT)
    with monkeypatch.context() as patch:
        patch.setattr(batches, "write_parts", cut)
        with pytest.raises(KeyboardInterrupt):
            prepare_inputs(one, cache)
    inputs = prepare_inputs(one, cache)
    assert not inputs.reused
    assert inputs.checksums == prepare_inputs(one, cache.parent / "other").checksums


def test_own_files_in_the_order_of_their_names(tmp_path: Path, own: Path) -> None:
    inputs = prepare_inputs(scenario(own_data(own), BULK, UPSERT | {"share": 0.1, "updates": 1}),
                            tmp_path / "cache")  # fmt: skip
    setup = read(inputs, 0)
    assert setup["id"].to_pylist() == list(range(ROWS))
    assert setup["updated"].to_pylist() == orders()["updated"].to_pylist()
    assert setup.schema.field("text").type == pa.string()
    assert inputs.record_schema.ordering == ("updated",)
    assert "event_ts" not in setup.schema.names
    newer = read(inputs, 1)
    stored = dict(zip(setup["id"].to_pylist(), setup["updated"].to_pylist(), strict=True))
    for key, time in zip(newer["id"].to_pylist(), newer["updated"].to_pylist(), strict=True):
        assert time > stored[key]


def test_without_an_ordering_column_event_ts_is_added(tmp_path: Path, own: Path) -> None:
    data = {key: value for key, value in own_data(own).items() if key != "ordering"}
    inputs = prepare_inputs(scenario(data, BULK, {"rows": 5, "updates": 1}), tmp_path / "cache")
    assert inputs.record_schema.ordering == ("event_ts",)
    assert read(inputs, 1).schema.field("event_ts").type == pa.int64()


def test_a_changed_file_makes_kept_batches_stale(tmp_path: Path, own: Path) -> None:
    one = scenario(own_data(own), BULK, {"rows": 5, "updates": 1})
    first = prepare_inputs(one, tmp_path / "cache")
    pq.write_table(orders(text=["new"] * ROWS).slice(60), own / "b.parquet")
    again = prepare_inputs(one, tmp_path / "cache")
    assert not again.reused
    assert again.checksums["setup-1"] != first.checksums["setup-1"]


def test_a_file_of_equal_size_and_time_of_writing_is_another(tmp_path: Path, own: Path) -> None:
    """As a copy leaves it that keeps both."""
    one = scenario(own_data(own), BULK, {"rows": 5, "updates": 1})
    pq.write_table(orders(text=["old"] * ROWS).slice(60), own / "b.parquet")
    first = prepare_inputs(one, tmp_path / "cache")
    before = (own / "b.parquet").stat()
    pq.write_table(orders(text=["new"] * ROWS).slice(60), own / "b.parquet")
    os.utime(own / "b.parquet", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (own / "b.parquet").stat().st_size == before.st_size
    again = prepare_inputs(one, tmp_path / "cache")
    assert not again.reused
    assert again.checksums["setup-1"] != first.checksums["setup-1"]


def test_own_files_as_batches(tmp_path: Path, own: Path) -> None:
    changes = orders().slice(10, 20).select(["text", "updated", "id", "country"])
    pq.write_table(pa.concat_tables([changes, changes]), tmp_path / "changes.parquet")
    inputs = prepare_inputs(
        scenario(own_data(own), BULK, {"path": str(tmp_path / "changes.parquet")}),
        tmp_path / "cache",
    )
    commit = read(inputs, 1)
    assert inputs.commits[0].rows == 40
    assert commit.schema.names == ["id", "country", "updated", "text"]
    assert commit["id"].to_pylist() == [*range(10, 30), *range(10, 30)]
    assert [pq.read_metadata(file).num_rows for file in inputs.commits[0].files] == [13, 13, 14]


def test_the_folder_of_a_scenario_is_no_pattern(tmp_path: Path) -> None:
    """Its name may look like one, and match a folder beside it."""
    for name in ("[ab]", "a"):
        source(tmp_path / name)
    asked = content(Path("rows.parquet"))
    file = tmp_path / "[ab]" / "s.toml"
    for path in ("*.parquet", "rows.parquet"):
        asked["data"]["path"] = path
        file.write_text(toml(asked))
        found = load_scenario(str(file)).data
        assert isinstance(found, ParquetData)
        assert find_files("data.path", found.path) == [tmp_path / "[ab]" / "rows.parquet"]
    (tmp_path / "[ab]" / "rows.parquet").unlink()
    with pytest.raises(DataError, match=r"data\.path: no file matches"):
        check_sources(load_scenario(str(file)))


def test_relative_globs_and_folders(tmp_path: Path, own: Path) -> None:
    assert [f.name for f in find_files("k", str(own))] == ["a.parquet", "b.parquet"]
    assert [f.name for f in find_files("k", str(own / "*.parquet"))] == ["a.parquet", "b.parquet"]
    assert [f.name for f in find_files("k", str(own / "a.parquet"))] == ["a.parquet"]
    assert [f.name for f in find_files("k", str(tmp_path / "**" / "b*"))] == ["b.parquet"]


def test_unfinished_files_of_other_programs_are_no_rows(tmp_path: Path) -> None:
    """A Spark job that was killed leaves the files of its tasks behind, whose rows may be there already."""
    folders = ("", "_temporary/0/task_0", "_delta_log", ".hoodie/metadata", "_day=1", "sub")
    for folder in folders:
        (tmp_path / "data" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / folder / "p.parquet").touch()
    whole = str(tmp_path / "data" / "**" / "*.parquet")
    found = [file.relative_to(tmp_path / "data") for file in find_files("k", whole)]
    assert [str(file.parent) for file in found] == ["_day=1", ".", "sub"]
    # somebody who names such a folder means it
    for path in ("_temporary/**/*.parquet", "_delta_log", "_delta_log/*.parquet"):
        assert [file.name for file in find_files("k", str(tmp_path / "data" / path))] == [
            "p.parquet"
        ]


@pytest.mark.parametrize("where", ["data", "commit"])
def test_dates_of_sparks_legacy_calendar_are_refused(where: str, tmp_path: Path, own: Path) -> None:
    """Spark converts them, and Arrow would take them for other days."""
    old = orders(updated=pa.array([datetime(1500, 1, 1)] * ROWS, pa.timestamp("us")))
    marked = old.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    path = tmp_path / "old.parquet"
    pq.write_table(marked, path)
    batch = UPSERT if where == "data" else {"path": str(path)}
    one = scenario(own_data(path if where == "data" else own), BULK, batch)
    with pytest.raises(
        DataError, match=r"column 'updated' of .*old.parquet may hold dates or times"
    ):
        check_sources(one)


def test_rows_without_keys_come_as_they_are(tmp_path: Path) -> None:
    # rows that are equal in all columns, and null in all of them
    rows = pa.table(
        {"a": pa.array([1, 1, None, None, 2] * 20), "b": ["x", "x", None, None, "y"] * 20}
    )
    pq.write_table(rows, tmp_path / "rows.parquet")
    data = {"source": "parquet", "path": str(tmp_path / "rows.parquet"), "keyless": True}
    own = {"operation": "insert", "path": data["path"]}
    inputs = prepare_inputs(
        scenario(data, {**BULK, "rows": 30}, {"operation": "insert", "rows": 70}, own),
        tmp_path / "cache",
    )
    assert inputs.record_schema.record_key == inputs.record_schema.ordering == ()
    assert read(inputs, 0).equals(rows.slice(0, 30))
    assert read(inputs, 1).equals(rows.slice(30))
    assert read(inputs, 2).equals(rows)
    with pytest.raises(UsageError, match="need 101 different keys, but the data has 100 rows"):
        prepare_inputs(
            scenario(data, {**BULK, "rows": 30}, {"operation": "insert", "rows": 71}),
            tmp_path / "cache",
        )


@pytest.mark.slow
def test_rows_of_tpch_without_keys_never_come_twice(tmp_path: Path) -> None:
    data = {**TPCH, "keyless": True}
    inputs = prepare_inputs(scenario(data, BULK, {"operation": "insert", "share": 0.5}), tmp_path)
    first, second = read(inputs, 0), read(inputs, 1)
    assert "event_ts" not in first.schema.names
    keys = pa.concat_tables([first, second])["o_orderkey"].to_pylist()
    assert len(set(keys)) == len(keys) == 2250


NULLS = pa.array([None if i < 7 else i for i in range(ROWS)], pa.int64())


@pytest.mark.parametrize(
    ("table", "data", "kind", "expected"),
    [
        (orders(), {"key": "idd"}, SchemaError, "data.key: {path} has no column 'idd'; its columns "
         "are id, country, updated, text; did you mean 'id'?"),
        (orders(), {"ordering": "when"}, SchemaError, "data.ordering: {path} has no column 'when'"),
        (orders(), {"partition": "land"}, SchemaError, "data.partition: {path} has no column 'land'"),
        (orders(id=pa.array([[i] for i in range(ROWS)])), {}, SchemaError,
         "data.key: column 'id' has the type list<element: int64>, expected a type without nesting"),
        (orders(extra=pa.array(range(ROWS), pa.uint32())), {}, SchemaError,
         "{path}: column 'extra' has the unsupported type uint32 (cast it to a signed integer)"),
        (orders().slice(0, 0), {}, DataError, "data.path: {path} has no rows"),
        (orders(id=NULLS), {}, DataError,
         "data.path: column 'id', the record key, is null in 7 of 100 rows of {path}"),
        (orders(updated=NULLS), {}, DataError,
         "column 'updated', the ordering value, is null in 7 of 100 rows of {path}"),
        (orders(id=pa.array([i % 90 for i in range(ROWS)])), {}, DataError,
         "data.key: id is not unique: 10 keys occur in several of the 100 rows"),
        (orders(), {"ordering": "text"}, DataError, "is null in 20 of 100 rows"),
        (orders(text=["x"] * ROWS), {"ordering": "text"}, LabError,
         "scenario s: column 'text', the ordering field, has the type string"),
        (orders(event_ts=[1] * ROWS), {"ordering": []}, LabError,
         "scenario s: the data already has a column 'event_ts'"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_written(
    tmp_path: Path, table: pa.Table, data: dict[str, Any], kind: type[LabError], expected: str
) -> None:
    path = tmp_path / "own.parquet"
    pq.write_table(table, path)
    one = scenario(own_data(path, **data), BULK, {"rows": 5, "updates": 1})
    with pytest.raises(kind) as caught:
        prepare_inputs(one, tmp_path / "cache")
    assert expected.format(path=path) in str(caught.value)
    assert caught.value.exit_status == 2
    assert not list((tmp_path / "cache").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("none", "data.path: {path} is neither a file nor a folder"),
        ("*.csv", "data.path: no file matches {path}"),
        ("empty", "data.path: the folder {path} has no .parquet file"),
        ("deep", "subfolders (name all of them by {path}/**/*.parquet)"),
        (
            "both",
            "subfolders (name all of them by {path}/**/*.parquet, its own by {path}/*.parquet)",
        ),
        ("text.parquet", "{path}: is not a readable Parquet file"),
    ],
)
def test_paths_that_lead_nowhere(tmp_path: Path, path: str, expected: str) -> None:
    (tmp_path / "empty").mkdir()
    for file in ("deep/er/x.parquet", "both/x.parquet", "both/er/x.parquet"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(orders(), tmp_path / file)
    (tmp_path / "text.parquet").write_text("text")
    with pytest.raises(DataError) as caught:
        check_sources(scenario(own_data(tmp_path / path), BULK, UPSERT))
    assert expected.format(path=tmp_path / path) in str(caught.value)


@pytest.mark.parametrize("path", ["data/**/*.parquet", "data/*/*.parquet", "data/b/*", "data/b"])
def test_folders_that_cannot_be_read_are_not_left_out(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows would be missing without a word."""

    def refuse(folder: Any = ".") -> Any:
        if str(folder).endswith("/b"):
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return scandir(folder)

    for name in ("a", "b", "_b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        pq.write_table(orders(), tmp_path / "data" / name / "x.parquet")
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", refuse)
    refused = tmp_path / "data" / "b"
    with pytest.raises(DataError, match=f"data.path: {refused} cannot be read: Permission denied"):
        check_sources(scenario(own_data(tmp_path / path), BULK, UPSERT))
    for other in ("data/a/*.parquet", "data/_b/x*", "data/a"):
        check_sources(scenario(own_data(tmp_path / other), BULK, UPSERT))


@pytest.mark.parametrize(
    ("table", "operation", "expected"),
    [
        (orders().drop_columns(["text"]), "upsert", "commit.1.path: {path} lacks column text of data.path"),
        (orders(texts=["x"] * ROWS), "upsert",
         "commit.1.path: {path} has a column 'texts' that is not in data.path; did you "
         "mean 'text'?"),
        (orders(id=pa.array(range(ROWS), pa.int32())), "upsert",
         "commit.1.path: column 'id' of {path} has the type int32, expected int64 as in data.path"),
        (orders(id=NULLS), "upsert",
         "commit.1.path: column 'id', the record key, is null in 7 of 100 rows of {path}"),
        (orders().slice(0, 0), "upsert", "commit.1.path: {path} has no rows"),
    ],
)  # fmt: skip
def test_batches_of_own_files_that_cannot_be_written(
    tmp_path: Path, own: Path, table: pa.Table, operation: str, expected: str
) -> None:
    path = tmp_path / "changes.parquet"
    pq.write_table(table, path)
    batch = {"operation": operation, "path": str(path)}
    with pytest.raises(UsageError) as caught:
        prepare_inputs(scenario(own_data(own), BULK, batch), tmp_path / "cache")
    assert expected.format(path=path) in str(caught.value)


def test_a_bulk_insert_of_stored_or_repeated_keys_is_refused(tmp_path: Path, own: Path) -> None:
    path = tmp_path / "more.parquet"
    for ids, number in (([5, 200, 201], 1), ([200, 200, 201], 1), ([200, 201, 202], 0)):
        pq.write_table(orders().slice(0, 3).set_column(0, "id", pa.array(ids)), path)
        one = scenario(
            own_data(own), BULK, BULK | {"path": str(path)}, {"path": str(path)}, setups=2
        )
        if number:
            with pytest.raises(DataError, match=rf"setup.2.path: {number} keys of .* occur in"):
                prepare_inputs(one, tmp_path / "cache")
        else:
            assert prepare_inputs(one, tmp_path / "cache").setups[1].rows == 3


def test_repeated_keys_are_counted_by_all_columns(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1, 1, 2, 2, 2], 'b"': [1, 2, 1, 1, 1]}), file)
    assert repeated_keys([file], ["a"]) == 2
    assert repeated_keys([file], ["a", 'b"']) == 1
    assert repeated_keys([file], ["a"], [file]) == 2


@pytest.mark.parametrize(("name", "beside"), [("a*b", "aXb"), ("a?b", "aXb"), ("a[1]", "a1")])
def test_a_files_name_is_no_pattern(tmp_path: Path, name: str, beside: str) -> None:
    files = [tmp_path / f"{one}.parquet" for one in (name, beside)]
    for first, file in zip((0, 1), files, strict=True):
        pq.write_table(pa.table({"id": [first, 9]}), file)
    assert repeated_keys(files[:1], ["id"]) == 0
    assert repeated_keys(files, ["id"]) == 1
    assert different_keys(files[:1], ["id"]) == 2
    assert different_keys(files, ["id"]) == 3


def test_keys_that_duckdb_cannot_count_are_a_fault_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "damaged.parquet"
    file.write_bytes(b"PAR1" * 10)
    with pytest.raises(DataError, match=r"damaged\.parquet: DuckDB cannot count the keys: \w"):
        repeated_keys([file], ["id"])


def test_a_folders_name_is_no_column_of_the_users_rows(tmp_path: Path) -> None:
    files = []
    for number in (1, 2):
        file = tmp_path / f"id={number}" / "x.parquet"
        file.parent.mkdir()
        pq.write_table(pa.table({"id": [5]}), file)
        files.append(file)
    assert repeated_keys(files, ["id"]) == 1


def test_asking_for_more_than_there_is(tmp_path: Path, own: Path) -> None:
    one = scenario(own_data(own), BULK, {"rows": 50, "updates": 0.5})
    with pytest.raises(
        UsageError, match="scenario s: the batches need 125 different keys, but the"
    ):
        prepare_inputs(one, tmp_path / "cache")
    two = scenario(own_data(own), BULK | {"rows": 10}, {"rows": 50, "updates": 0.5})
    with pytest.raises(
        UsageError, match=r"commit.1 \(upsert\) updates 25 stored keys, but only 10"
    ):
        prepare_inputs(two, tmp_path / "cache")


def test_keys_of_tpch_that_are_not_unique_are_refused(cache: Path) -> None:
    with pytest.raises(DataError, match=r"data\.key: o_custkey is not unique"):
        prepare_inputs(scenario({**TPCH, "key": "o_custkey"}, BULK, UPSERT), cache)


@pytest.mark.parametrize(("factor", "repeated"), [(0.001, 60), (0.015, 150), (0.01, 0)])
def test_partsupp_repeats_keys_at_some_small_factors(
    factor: float, repeated: int, tmp_path: Path
) -> None:
    """Its updates would change one of two rows, and its batches would have fewer keys than they say."""
    one = scenario({**TPCH, "table": "partsupp", "scale_factor": factor}, BULK, UPSERT)
    if not repeated:
        prepare_inputs(one, tmp_path / "cache")
        return
    said = rf"not unique: {repeated} keys .* or set data\.scale_factor to 0\.03 or more"
    with pytest.raises(DataError, match=said):
        prepare_inputs(one, tmp_path / "cache")


def test_every_supported_type_survives(tmp_path: Path) -> None:
    from decimal import Decimal

    table = orders(
        bits=[True, None] * 50,
        small=pa.array([1, None] * 50, pa.int8()),
        exact=pa.array([Decimal("1.5"), None] * 50, pa.decimal128(38, 10)),
        zone=pa.array([0, None] * 50, pa.timestamp("us", "UTC")),
        nested=pa.array([[{"x": [1, None]}], None] * 50),
        map=pa.array([[("a", 1)], None] * 50, pa.map_(pa.string(), pa.int32())),
        big=pa.array(["x", None] * 50, pa.large_string()),
    )
    path = tmp_path / "own.parquet"
    pq.write_table(table, path)
    inputs = prepare_inputs(
        scenario(own_data(path), BULK, {"rows": 5, "updates": 1}), tmp_path / "cache"
    )
    setup = read(inputs, 0)
    assert setup.to_pylist() == table.to_pylist()
    assert setup.schema.field("small").type == pa.int8()
    assert setup.schema.field("big").type == pa.string()
    assert checksum(setup) == checksum(table)


def test_where_the_cache_is() -> None:
    assert default_cache({}) == Path(".cache/serde_lab")
    assert default_cache({"XDG_CACHE_HOME": "/x"}) == Path("/x/serde_lab")
    assert default_cache({"XDG_CACHE_HOME": "/x", "SERDE_LAB_CACHE": "/y"}) == Path("/y")


def test_the_environment_names_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERDE_LAB_CACHE", str(cache))
    inputs = prepare_inputs(scenario(TPCH, BULK, UPSERT))
    assert inputs.folder.is_relative_to(cache)


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match=r"the cache .* cannot be written"):
        prepare_inputs(scenario(TPCH, BULK, UPSERT), tmp_path / "file")


@pytest.mark.slow
def test_two_processes_make_one_set(cache: Path) -> None:
    script = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from serde_lab.lab.inputs.prepared import prepare_inputs\n"
        "from serde_lab.scenario.loading import parse_scenario\n"
        "found = prepare_inputs(parse_scenario(json.loads(sys.argv[1])), Path(sys.argv[2]))\n"
        "print(found.reused, found.checksums['commit-1'])\n"
    )
    import json

    content = json.dumps(scenario(TPCH, BULK, UPSERT).to_json())
    command = [sys.executable, "-c", script, content, str(cache)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate()[0].split()[0] for process in processes)
    assert said == ["False", "True"]


def test_preparing_needs_neither_spark_nor_java() -> None:
    script = (
        "import sys, serde_lab.lab.inputs.prepared\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')]\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
