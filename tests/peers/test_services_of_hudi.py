"""What Apache Hudi undoes and rearranges in a table that the lab writes, too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.peers import procedures
from tests.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.lab_writer import LabWriter
from tests.peers.peer_tables import DELETE, FIRST, LAST, SECOND, PeerTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

KEY = ("k", "n")
WRITE = HudiWrite()


def call(table: PeerTable, procedure: str, **arguments: str) -> None:
    procedures.call(table.spark, table.path, table.table.version, procedure, **arguments)


def test_a_restored_table_is_written_by_both(hudi_session: SparkSession, tmp_path: Path) -> None:
    facts = HudiTable("t", KEY, ("o",), table_type="MERGE_ON_READ", version=6, buckets=2)
    table = PeerTable(hudi_session, tmp_path, facts)
    lab = LabWriter(table, version=6)
    lab.step(FIRST)
    table.by_hudi(SECOND, WRITE)
    call(table, "create_savepoint")
    saved = list(table.commits)
    lab.step(DELETE)
    table.by_hudi(LAST, WRITE)
    call(table, "rollback_to_savepoint")
    table.commits = saved
    assert table.problems() == []
    lab.step(LAST)
    table.by_hudi(DELETE, WRITE)
    assert table.problems() == []


def test_a_clustered_table_is_written_by_both(hudi_session: SparkSession, tmp_path: Path) -> None:
    facts = HudiTable("t", KEY, ("o",), table_type="MERGE_ON_READ", index="BLOOM")
    table = PeerTable(hudi_session, tmp_path, facts)
    lab = LabWriter(table)
    lab.step(FIRST)
    table.by_hudi(SECOND, WRITE)
    call(table, "run_clustering", op="scheduleAndExecute")
    assert table.problems() == []
    # the lab takes the plan of one that never ran away
    call(table, "run_clustering", op="schedule")
    lab.step(DELETE)
    table.by_hudi(LAST, WRITE)
    assert table.problems() == []


def test_logs_on_a_pending_compaction_before_version_8(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    """They name a base file that does not exist yet: hudi-rs leaves them out (readers.toml)."""
    facts = HudiTable("t", KEY, ("o",), table_type="MERGE_ON_READ", version=6, buckets=2)
    table = PeerTable(hudi_session, tmp_path, facts)
    for step in (FIRST, SECOND):
        table.by_hudi(step, WRITE)
    few = "hoodie.compact.inline.max.delta.commits=1"
    call(table, "run_compaction", op="schedule", options=few)
    table.by_hudi(LAST, WRITE)
    assert table.problems(("apache-hudi", "serde_lab")) == []
    assert table.problems(("hudi-rs",))
