"""Random histories of upserts, deletes and compactions on every kind of table, against DuckDB."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serde_lab.table.read_plan import plan_snapshot
from serde_lab.verify.table_checks import check_contents
from tests.pipeline.lab_table import MOR, PARTITIONED, STRATEGIES, LabTable, Rows

pytestmark = pytest.mark.slow

KEYS = st.sampled_from(["a", "b", "", "\0", "é", "\U0001f600", "x,y:z"])
ROWS = st.lists(
    st.tuples(
        KEYS,
        st.integers(0, 4),
        st.integers(-2, 2),
        st.one_of(st.none(), st.sampled_from([0.0, -0.0, float("nan"), 1.5])),
    ),
    max_size=12,
)
WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), ROWS),
        st.tuples(st.just("upsert"), ROWS),
        st.tuples(st.just("delete"), ROWS),
        st.tuples(st.just("compact"), st.just([])),
    ),
    max_size=5,
)
KINDS = st.fixed_dictionaries(
    {
        "type": st.sampled_from([{}, MOR, MOR]),
        "partition": st.sampled_from([{}, PARTITIONED]),
        "order": st.sampled_from(
            [
                {},
                {},
                {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"},
                {"hoodie.datasource.write.precombine.field": ""},
            ]
        ),
        "version": st.sampled_from(["9", "9", "6"]),
        "blocks": st.sampled_from(["avro", "parquet"]),
        "block_bytes": st.sampled_from(["1", "200", "1000000"]),
        "log_bytes": st.sampled_from(["1", "3000", "1000000"]),
        "strategy": st.sampled_from(STRATEGIES),
        "rows_per_frame": st.sampled_from(["1", "3", "0"]),
        "parallelism": st.sampled_from(["1", "3", "4", "9"]),
        "files": st.integers(1, 3),
    }
)


def options_of(kind: dict[str, Any]) -> dict[str, str]:
    """The options of every write to a table of this kind."""
    options = {
        **kind["type"],
        **kind["partition"],
        **kind["order"],
        "hoodie.write.table.version": kind["version"],
        "hoodie.upsert.shuffle.parallelism": kind["parallelism"],
        "hoodie.delete.shuffle.parallelism": kind["parallelism"],
        "serde_lab.strategy": kind["strategy"],
        "serde_lab.rows_per_frame": kind["rows_per_frame"],
    }
    if kind["type"]:
        options["hoodie.logfile.data.block.format"] = kind["blocks"]
        options["hoodie.logfile.data.block.max.size"] = kind["block_bytes"]
        options["hoodie.logfile.max.size"] = kind["log_bytes"]
    return options


@given(kind=KINDS, first=ROWS, writes=WRITES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_history_reads_as_duckdb_says(
    kind: dict[str, Any], first: Rows, writes: list[tuple[str, Rows]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = LabTable(Path(folder), options_of(kind))
        table.upsert(first, files=kind["files"])
        completions = [completion(table)]
        for operation, rows in writes:
            before = len(table.commits)
            if operation == "upsert":
                table.upsert(rows, files=kind["files"])
            elif operation == "delete":
                table.delete(rows, files=kind["files"])
            else:
                table.compact()
            completions += [completion(table)] * (len(table.commits) - before)
        table.check()
        # and as it stood after any one of them
        for number, as_of in enumerate(completions, 1):
            expected = table.expected(number)
            seen = plan_snapshot(table.table, as_of=as_of).read()
            found = check_contents(seen, expected, table.rules, f"us as of {number}").results[0]
            assert found.passed, found.detail


def completion(table: LabTable) -> str:
    """When the newest write completed."""
    return table.table.timeline().completed()[-1].completion_time or ""
