"""A small run of the scenario `stream`: two table types by the lab, and Apache Hudi's sink beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.analysis.summary import summarise
from serde_lab.lab.checks.stored_batches import (
    STORED_ONCE,
    WHOLE_READS,
    states_of,
    stored_once,
    timed_instants,
    whole_reads,
)
from serde_lab.lab.lab_reader import Read
from serde_lab.report.render import run_text
from serde_lab.runs.model import Run
from serde_lab.table.table import HoodieTable
from tests.lab.small_scenario import content, run_in_session, source
from tests.peers.conftest import hudi_session as hudi_session
from tests.streams.small_stream import SHORT_TIMELINE, SmallStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 3
MOR = {"type": "MERGE_ON_READ", "log_blocks": "parquet", "codec_level": 3}


def document(folder: Path, arms: list[Any], **stream: Any) -> dict[str, Any]:
    made = content(source(folder), arms, exchange="spark", table=MOR, data={"input_partitions": 1})
    return {
        **made,
        "commit": [{"rows": 100, "updates": 0.5, "late": 0.1}],
        "stream": {"batches": BATCHES, "warmup_batches": 1, "compact_after": 2, **stream},
    }


def passed(run: Run, arm: str) -> set[str]:
    found = [check for check in run.checks if check.arm == arm]
    assert not [check for check in found if check.failed]
    return {check.name for check in found if check.passed}


PHASES = ("prepare", "begin", "plan", "execute", "commit", "serve")
CHECKS = {"rows_match_oracle", "no_duplicate_keys", "meta_columns", "arms_agree", STORED_ONCE}
OF_BOTH_SIDES = {
    "seconds",
    "rows",
    "driver.add_batch_s",
    "driver.before_requested_s",
    "driver.after_completed_s",
}


def by_batch(run: Run, arm: str) -> dict[int, dict[str, float]]:
    (cell,) = (cell for cell in run.cells if cell.arm == arm)
    found: dict[int, dict[str, float]] = {}
    for sample in cell.samples:
        if sample.commit is not None:
            found.setdefault(sample.commit, {})[sample.metric] = sample.value
    return found


@pytest.mark.spark
def test_readers_beside_a_stream_see_whole_batches(spark: SparkSession, tmp_path: Path) -> None:
    given = document(tmp_path, ["arrow"], batches=8, readers=2)
    run = run_in_session(spark, given, tmp_path)
    assert WHOLE_READS in passed(run, "arrow")
    (check,) = (one for one in run.checks if one.name == WHOLE_READS)
    assert "by hudi-rs 2" in check.detail
    assert "by serde_lab 1" in check.detail
    batches = by_batch(run, "arrow")
    assert any("driver.reads_s" in metrics for metrics in batches.values())
    assert "driver.reads_s" not in batches[1]
    told = {name for metrics in batches.values() for name in metrics if "read_by" in name}
    assert told == {"driver.read_by_hudi_rs_s", "driver.read_by_serde_lab_s"}


def test_a_read_of_half_a_batch_is_found(tmp_path: Path) -> None:
    def file(name: str, keys: list[int], values: list[int]) -> Path:
        rows = {"k": keys, "o": [str(k % 2) for k in keys], "ts": values}
        pq.write_table(pa.table(rows), tmp_path / name)
        return tmp_path / name

    setup = file("setup", [1, 2, 3], [10, 10, 10])
    # a late row, a key twice, and a new key
    first = [file("first", [1, 2, 2, 4], [5, 30, 20, 7])]
    second = [file("second", [3], [11])]
    by_event = states_of([setup], [first, second], ["k", "o"], "ts", by_event=True)
    assert by_event == [(3, 30), (4, 57), (4, 58)]
    by_time = states_of([setup], [first, second], ["k", "o"], "ts", by_event=False)
    assert by_time == [(3, 30), (4, 42), (4, 43)]

    # sums may be beyond 64 bits, in which Arrow and numpy wrap them
    for values, total in (([1 << 62] * 3, 3 << 62), ([-3, 1, 0], (1 << 64) - 2)):
        found = states_of([file("wide", [1, 2, 3], values)], [], ["k"], "ts", by_event=True)
        assert found == [(3, total)]

    def verdict(*seen: tuple[str, int, int]) -> str:
        found = whole_reads([Read(name, 0, 1, *state) for name, *state in seen], by_event)
        assert found.name == WHOLE_READS
        return "" if found.passed else found.detail

    assert verdict(("a", 3, 30), ("a", 4, 58), ("b", 4, 57)) == ""
    assert verdict(("a", 3, 50)) == "a saw 3 rows, which are those after no batch"
    assert verdict(("a", 4, 58), ("a", 4, 57)) == "a saw batch 2, and later only 1"
    assert verdict() == "nobody read the table"
    broken = whole_reads([Read("a", 0, 1, error="no table")], by_event)
    assert (broken.passed, broken.detail) == (False, "a: no table")


@pytest.mark.spark
def test_a_stream_is_measured_batch_by_batch(spark: SparkSession, tmp_path: Path) -> None:
    cow = {"name": "cow", "strategy": "pickle", "table": {"type": "COPY_ON_WRITE"}}
    run = run_in_session(spark, document(tmp_path, ["internal_row", cow]), tmp_path)
    for arm in ("internal_row", "cow"):
        assert passed(run, arm) >= CHECKS
        batches = by_batch(run, arm)
        assert list(batches) == [1, 2, 3]
        for metrics in batches.values():
            assert metrics.keys() >= OF_BOTH_SIDES
            assert metrics["rows"] == 100
            own = [metrics[f"driver.{name}_s"] for name in PHASES]
            assert sum(own) <= metrics["driver.add_batch_s"] + 0.002
            assert metrics["driver.add_batch_s"] <= metrics["seconds"]
        # one empty job at each end of the stream
        empty = {
            n: m["driver.empty_job_s"] for n, m in batches.items() if "driver.empty_job_s" in m
        }
        assert list(empty) == [1, 2]
        assert min(empty.values()) > 0
    # the set-up's deltacommit is the first of two
    compacted = [n for n, m in by_batch(run, "internal_row").items() if "driver.compactions" in m]
    assert compacted == [1, 3]
    summary = summarise(run)
    ours, theirs = summary["streams"]["arms"]
    sink = [m["driver.add_batch_s"] - m["driver.serve_s"] for m in by_batch(run, "cow").values()]
    assert theirs["fixed"]["commit_s"]["value"] == pytest.approx(sorted(sink)[1])
    empty_s = theirs["fixed"]["empty_job_s"]["value"]
    assert theirs["fixed"]["over_empty_s"]["value"] == pytest.approx(sorted(sink)[1] - empty_s)
    assert (ours["table_type"], theirs["table_type"]) == ("MERGE_ON_READ", "COPY_ON_WRITE")
    assert 0 < ours["serde_share"] < 1
    assert set(summary["arms"][0]["phases"]) > {"map.encode", "reduce.decode", "compact.merge"}
    assert "## Streams" in run_text(run, "md")


@pytest.mark.spark
@pytest.mark.hudi
def test_apache_hudis_sink_is_measured_alike(hudi_session: SparkSession, tmp_path: Path) -> None:
    peer = {"name": "hudi_spark_tuned", "peer": "hudi_spark_tuned"}
    whole = document(tmp_path, ["arrow", peer], trigger="processing_time")
    run = run_in_session(hudi_session, whole, tmp_path)
    for arm in ("arrow", "hudi_spark_tuned"):
        assert passed(run, arm) >= CHECKS
        batches = by_batch(run, arm)
        assert list(batches) == [1, 2, 3]
        assert all(metrics.keys() >= OF_BOTH_SIDES for metrics in batches.values())
        # both compact in the same batches, inside of them
        assert [n for n, m in batches.items() if "driver.compactions" in m] == [1, 3]


def test_batches_are_counted_on_the_active_and_the_archived_timeline(tmp_path: Path) -> None:
    stream = SmallStream.of(tmp_path / "table", options=SHORT_TIMELINE)
    for number in range(8):
        stream.send(number, [("p", f"{number}", number, "v")])
    table = HoodieTable.open(stream.storage)
    assert len(table.timeline().completed()) < 8
    instants = timed_instants(table)
    assert [one.batches for one in instants if one.batches] == [(n,) for n in range(8)]
    assert all(one.interval.length_ns >= 0 for one in instants)
    assert "clean" in {one.action for one in instants}
    found = stored_once(table, 8)
    assert (found.passed, found.detail) == (True, "8 batches, each in one commit")
    # one that is missing, one too many, and one that a second query stored again
    for batches, said in ((10, "missing: batch 8, 9"), (7, "unknown: batch 7")):
        found = stored_once(table, batches)
        assert (found.passed, found.detail) == (False, said)
    again = SmallStream.of(
        tmp_path / "table", query="two", identifier="two", options=SHORT_TIMELINE
    )
    again.send(0, [("p", "0", 9, "w")])
    found = stored_once(HoodieTable.open(stream.storage), 8)
    assert (found.passed, found.detail) == (False, "stored more than once: batch 0")
