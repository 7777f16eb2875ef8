"""Tables that the lab wrote by other indexes, chains and operations than upserts into buckets: Apache Hudi
and hudi-rs read them, Hudi finds every key where the lab put it, and the lab finds Hudi's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from serde_lab.verify.readers import HudiRs
from tests.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.hudi_reads import HudiSnapshot
from tests.peers.lab_writer import LabWriter
from tests.peers.peer_tables import DELETE, FIRST, SECOND, PeerTable, Step, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]


@dataclass(frozen=True)
class Kind:
    """A table of ours, and by which chain it is written."""

    table: dict[str, Any]
    topology: str
    strategy: str
    version: int = 9
    overwrites: bool = True


HIVE = {"partition": ("p",), "hive_style": True}
MOR = {"table_type": "MERGE_ON_READ"}
KINDS = {
    "bloom, cow, version 6": Kind({"index": "BLOOM"} | HIVE, "bloom", "arrow", 6),
    "step3, simple index, mor": Kind({"index": "SIMPLE"} | HIVE | MOR, "step3", "avro"),
    "compatible, global index, cow": Kind(
        {"index": "GLOBAL_SIMPLE"} | HIVE, "compatible", "pickle", overwrites=False
    ),
}
# of partition 1 of three
OVER = Step("insert_overwrite", (rows(range(1, 30, 3), 3, "over") + rows([61, 61], 1, "over"),))
NEW = Step("insert", (rows(range(500, 520), 1, "inserted"),))
BY_HUDI = Step("upsert", (rows([1, 4, 2, 510, 12], 20, "by Hudi"), rows([7, 600], 1, "late, new")))
AGAIN = Step("upsert", (rows([1, 5, 501, 600, 601], 21, "by the lab again"), rows([2], 2, "late")))
GONE = Step("delete", (rows([4, 502, 600, 999], 1, "deleted by the lab"),))


@pytest.mark.parametrize("name", KINDS)
def test_hudi_finds_what_was_assigned_and_replaced(
    name: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    kind = KINDS[name]
    table = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k", "n"), ("o",), **kind.table))
    lab = LabWriter(table, version=kind.version, strategy=kind.strategy)
    chain = {"serde_lab.topology": kind.topology, "hoodie.upsert.shuffle.parallelism": "2"}
    steps = (FIRST, SECOND, DELETE, *((OVER,) if kind.overwrites else ()), NEW)
    for step in steps:
        lab.step(step, **chain)
    assert table.problems() == []
    table.by_hudi(BY_HUDI, HudiWrite())
    assert table.problems() == []
    lab.step(AGAIN, **chain)
    lab.step(GONE, **chain)
    assert table.problems() == []


# stored already: older and newer ones; and a key that comes twice
AGAIN_INSERTED = Step(
    "insert",
    (
        rows(range(200, 230), 3, "new") + rows([5, 6], 9, "newer") + rows([7, 8], 1, "older"),
        rows([200, 300], 8, "higher twin") + rows([300], 2, "lower twin"),
    ),
)


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_an_insert_into_buckets_leaves_what_hudis_leaves(
    table_type: Literal["COPY_ON_WRITE", "MERGE_ON_READ"],
    hudi_session: SparkSession,
    tmp_path: Path,
) -> None:
    seen = []
    for who in ("lab", "hudi"):
        kind = HudiTable("t", ("k", "n"), ("o",), table_type=table_type)
        table = PeerTable(hudi_session, tmp_path / who, kind)
        lab = LabWriter(table)
        for step in (FIRST, AGAIN_INSERTED):
            if who == "lab":
                lab.step(step)
            else:
                table.by_hudi(step, HudiWrite())
        with HudiSnapshot(hudi_session, table.path) as by_hudi:
            found = [by_hudi.table(), HudiRs(table.path).table()]
        seen += [
            sorted(zip(*(part.column(name).to_pylist() for name in ("n", "o")), strict=True))
            for part in found
        ]
    assert seen[0] == seen[1] == seen[2] == seen[3]
    stored_before = [at for at in seen[0] if at[0] in (5, 7)]
    merged = [(5, 9), (7, 5)]
    both = sorted([*merged, (5, 5), (7, 1)])
    assert stored_before == (both if table_type == "COPY_ON_WRITE" else merged)
