"""Tables that the lab wrote: Apache Hudi and hudi-rs read them, Hudi writes on, and so does the lab.

After every write, by whichever writer, all readers see what the oracle says. Here are merging by commit
time and columns of all types in one table; `test_interop.py` has the cover of everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from serde_lab.errors import TableError
from serde_lab.table.table import HoodieTable
from tests.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.lab_writer import LabWriter
from tests.peers.peer_tables import DELETE, FIRST, LAST, SECOND, PeerTable, Step, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]


@dataclass(frozen=True)
class Kind:
    """A table of ours, and how Hudi then writes to it."""

    table: dict[str, Any]
    hudi: dict[str, Any]
    blocks: Any = "avro"
    version: int = 9
    strategy: str = "internal_row"


COW, MOR = {"table_type": "COPY_ON_WRITE"}, {"table_type": "MERGE_ON_READ"}
FLAT: dict[str, Any] = {}
HIVE = {"partition": ("p",), "hive_style": True}
TWO = {"partition": ("p", "q"), "url_encode": True, "buckets": 2}
BY_COMMIT = {"merge_mode": "COMMIT_TIME_ORDERING"}
AVRO, SPARK, MDT = {"record_type": "AVRO"}, {"record_type": "SPARK"}, {"metadata_table": True}

KINDS = {
    "cow, two fields, by commit, avro": Kind(COW | TWO | BY_COMMIT, AVRO, strategy="pickle"),
    "mor avro log, hive, by commit, spark, mdt": Kind(
        MOR | HIVE | BY_COMMIT, SPARK | MDT, strategy="avro"
    ),
    "mor parquet log, by commit, avro": Kind(
        MOR | FLAT | BY_COMMIT, AVRO, "parquet", strategy="arrow"
    ),
}

MORE = Step("upsert", (rows(range(50, 62), 11, "by Hudi"), rows(range(200, 210), 1, "new by Hudi")))
GONE = Step("delete", (rows([50, 200, 3, 777], 1, "deleted by Hudi"),))
AGAIN = Step(
    "upsert", (rows(range(55, 70), 12, "by the lab again"), rows([51, 300], 2, "late, new"))
)


@pytest.mark.parametrize("name", KINDS)
def test_both_write_in_turn_and_all_read_alike(
    name: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    kind = KINDS[name]
    table = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k", "n"), ("o",), **kind.table))
    lab = LabWriter(table, kind.blocks, kind.version, kind.strategy)
    for step in (FIRST, SECOND, DELETE):
        lab.step(step)
    assert table.problems() == []
    write = HudiWrite(**kind.hudi, retain_commits=1)
    table.by_hudi(LAST, write)
    table.by_hudi(GONE, write)
    assert table.problems() == []
    merge_on_read = table.table.table_type == "MERGE_ON_READ"
    compacting = HudiWrite(**kind.hudi, retain_commits=1, compact_after=1 if merge_on_read else 0)
    table.by_hudi(MORE, compacting, compacted=merge_on_read)
    assert table.problems() == []
    if write.metadata_table:
        with pytest.raises(TableError, match="has a metadata table"):
            lab.step(AGAIN)
        del table.commits[-1]  # nothing was written
        assert table.problems() == []
        HoodieTable.open(lab.storage).drop_metadata_table()
    lab.step(AGAIN)
    assert table.problems() == []


@pytest.mark.parametrize("blocks", ["avro", "parquet"])
def test_old_dates_are_read_by_all(blocks: Any, hudi_session: SparkSession, tmp_path: Path) -> None:
    columns = pa.schema(
        [
            ("k", pa.int64()),
            ("o", pa.int64()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    days = [(1, 1, 1), (1582, 10, 4), (1582, 10, 15), (1899, 12, 31), (9999, 12, 31)]

    def rows(ordering: int, numbers: range) -> list[dict[str, Any]]:
        return [
            {"k": n, "o": ordering, "day": date(*days[n]), "at": datetime(*days[n], tzinfo=UTC)}
            for n in numbers
        ]

    facts = HudiTable("t", ("k",), ("o",), buckets=1, table_type="MERGE_ON_READ")
    table = PeerTable(hudi_session, tmp_path, facts, columns)
    lab = LabWriter(table, blocks)
    lab.step(Step("upsert", (rows(1, range(len(days))),), columns))
    lab.step(Step("upsert", (rows(2, range(3)),), columns))
    assert table.problems() == []
