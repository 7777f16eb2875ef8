"""A write warns of what some version of Hudi cannot read, whatever strategy and exchange carry it."""

from __future__ import annotations

import datetime as dt
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.cli.app import main
from serde_lab.errors import PortabilityWarning
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.lab.small_scenario import content, rows, source, toml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.bucket.index.num.buckets": "2",
}
HOLES = pa.table(
    {
        "k": pa.array(range(6), pa.int64()),
        "full": pa.array([[1, 2]] * 6, pa.list_(pa.int32())),
        "holes": pa.array([[1], None, [], [3, None], [None], [4]], pa.list_(pa.int32())),
    }
)


def write(folder: Path, data: pa.Table, **options: str) -> None:
    parsed = parse_options(OPTIONS | options)
    prepared = PreparedWrite.of(Storage.open(folder), data.schema, parsed)
    prepared.commit(InProcessExchange([data.to_batches()]))


def stored(folder: Path) -> int:
    plan = plan_snapshot(HoodieTable.open(Storage.open(folder)))
    return sum(batch.num_rows for found in plan.slices for batch in plan.batches(found))


@pytest.mark.parametrize("strategy", ["pickle", "avro", "internal_row", "arrow"])
def test_null_elements_of_lists_are_named_by_their_column(strategy: str, tmp_path: Path) -> None:
    options = {"serde_lab.strategy": strategy}
    with pytest.warns(PortabilityWarning, match="^column holes: Apache Hudi 1.2.0") as caught:
        write(tmp_path, HOLES, **options)
    assert len(caught) == 1
    assert stored(tmp_path) == 6
    write(tmp_path, HOLES.slice(0, 3), **options)  # without null elements, and without a warning


def test_a_warning_that_is_made_an_error_commits_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PortabilityWarning)
        with pytest.raises(PortabilityWarning, match="column holes"):
            write(tmp_path, HOLES)
    assert not HoodieTable.exists(Storage.open(tmp_path))
    assert list(tmp_path.rglob("*.parquet")) == []


def test_timestamps_without_zone_are_named_before_anything_is_written(tmp_path: Path) -> None:
    moments = pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))
    data = pa.table({"k": pa.array([1], pa.int64()), "at": moments})
    with pytest.warns(PortabilityWarning, match="^column at: hudi-rs 0.5.0 cannot read"):
        write(tmp_path, data)
    # a delete brings no such column
    write(tmp_path, data, **{"hoodie.datasource.write.operation": "delete"})


def test_kinds_of_tables_are_warned_of_at_every_write(tmp_path: Path) -> None:
    data = pa.table({"k": [1], "a": [1], "b": [1]})
    options = {"hoodie.table.ordering.fields": "a,b"}
    for _ in range(2):
        with pytest.warns(
            PortabilityWarning, match="^fields a, b: hudi-rs 0.5.0 refuses"
        ) as caught:
            write(tmp_path, data, **options)
        assert caught[0].filename == __file__
    write(tmp_path, data, **{"hoodie.datasource.write.operation": "delete"})


def test_records_that_stay_in_the_folder_of_older_values_are_warned_of(tmp_path: Path) -> None:
    data = pa.table({"k": pa.array([1], pa.int64()), "p": ["x"]})
    options = OPTIONS | {
        "hoodie.index.type": "GLOBAL_SIMPLE",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.simple.index.update.partition.path": "false",
    }
    del options["hoodie.bucket.index.num.buckets"]
    prepared = parse_options(options)
    with pytest.warns(PortabilityWarning, match="^column p: a record that stays") as caught:
        PreparedWrite.of(Storage.open(tmp_path), data.schema, prepared)
    assert len(caught) == 1
    # a record that moves, and rows that are only added, have the values of their folders
    for other in (
        {"hoodie.simple.index.update.partition.path": "true"},
        {"hoodie.datasource.write.operation": "insert"},
    ):
        PreparedWrite.of(Storage.open(tmp_path), data.schema, parse_options(options | other))


@pytest.mark.spark
@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_over_spark(operation: str, spark: SparkSession, tmp_path: Path) -> None:
    import serde_lab

    frame = spark.createDataFrame(
        [(1, [1, None], dt.datetime(2024, 1, 1))], "k long, holes array<int>, at timestamp_ntz"
    )
    options = OPTIONS | {"hoodie.datasource.write.operation": operation}
    with pytest.warns(PortabilityWarning) as caught:
        serde_lab.write(frame, str(tmp_path), options)
    ours = [one for one in caught if one.category is PortabilityWarning]
    said = [str(one.message).partition(":")[0] for one in ours]
    assert said == ["column at", "column holes"]
    assert {one.filename for one in ours} == {__file__}


def zoneless() -> pa.Table:
    moments = [dt.datetime(2024, 1, 1) + dt.timedelta(hours=n) for n in range(200)]
    return rows(200).append_column("at", pa.array(moments, pa.timestamp("us")))


@pytest.mark.slow
def test_the_lab_says_so_and_judges_by_its_own_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "zoneless.toml"
    document: dict[str, Any] = content(source(tmp_path / "data", zoneless()), ("arrow", "pickle"))
    document["reference"] = "arrow"
    scenario.write_text(toml(document))
    folders = [f"--{name}={tmp_path / name}" for name in ("results", "reports", "cache")]
    assert main(["run", str(scenario), *folders, "--format", "json"]) == 0
    said = capsys.readouterr().err
    assert said.count("serde-lab: warning: columns at: hudi-rs 0.5.0 cannot read timestamps") == 1
    assert said.count("serde-lab: warning: column at: hudi-rs 0.5.0 cannot read a table") == 1
    assert "Error" not in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_the_lab_judges_by_its_own_reader_what_is_ordered_by_two_columns(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = pa.array(range(200), pa.int64())
    whole = rows(200).append_column("a", numbers).append_column("b", numbers)
    document = content(
        source(tmp_path / "data", whole), data={"ordering": ["a", "b"]}, table={"type": kind}
    )
    scenario = tmp_path / "two.toml"
    scenario.write_text(toml(document))
    folders = [f"--{name}={tmp_path / name}" for name in ("results", "reports", "cache")]
    assert main(["run", str(scenario), *folders, "--format", "json"]) == 0
    said = capsys.readouterr().err
    assert "serde-lab: warning: fields a, b: hudi-rs 0.5.0 refuses to read a table" in said
