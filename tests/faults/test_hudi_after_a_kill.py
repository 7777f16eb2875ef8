"""What Apache Hudi makes of a killed driver: it reads the last commit, and its next write recovers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.faults.killed_driver import KillPoint, kill
from tests.faults.looks import look
from tests.faults.small_table import (
    KEPT,
    SCHEMA,
    Seen,
    check_after_archiving,
    check_file_groups,
    check_readers,
    make,
    residue,
    seen_after,
)
from tests.faults.test_killed_driver import COURSES, Course, case_name
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.peers.hudi_reads import HudiSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]


def check_hudi(spark: SparkSession, storage: Storage, expected: Seen) -> None:
    with HudiSnapshot(spark, storage.url) as snapshot:
        look("Apache Hudi", snapshot.table(), SCHEMA.names, expected)


@pytest.mark.parametrize("course", COURSES[:2], ids=case_name)
def test_hudi_takes_over(course: Course, hudi_session: SparkSession, tmp_path: Path) -> None:
    table_type = course.table_type
    storage = make(tmp_path, table_type)
    last_file = course.completed_at - 1
    assert kill(course.work, tmp_path, table_type, KillPoint(last_file)) == course.steps[last_file]
    (dead,) = HoodieTable.open(storage).timeline().pending()
    check_hudi(hudi_session, storage, KEPT)

    rows = [("p", "a", 50, "by Hudi")]
    frame = hudi_session.createDataFrame(rows, "p string, k string, ts bigint, v string")
    table = HudiTable("t", ("k",), ("ts",), ("p",), table_type, buckets=2)  # type: ignore[arg-type]
    options = write_options(table, HudiWrite())
    frame.write.format("hudi").options(**options).mode("append").save(storage.url)
    assert residue(storage, dead.time).pending == ()
    assert residue(storage, dead.time).data_files == ()
    now = seen_after(KEPT, rows)
    check_hudi(hudi_session, storage, now)
    check_readers(storage, now)
    check_file_groups(storage)
    check_after_archiving(storage, table_type, now, dead.time)
