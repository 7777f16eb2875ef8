"""The doctor over tables that Apache Hudi wrote: nothing is found on sound ones, each damage by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serde_lab.table.storage.storage import Storage
from serde_lab.table.validation import Diagnosis, validate_table
from serde_lab.verify.readers import HudiRs
from tests.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.peer_tables import DELETE, FIRST, LAST, SECOND, PeerTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

HIVE = {"partition": ("p",), "hive_style": True}
MOR = {"table_type": "MERGE_ON_READ"}
KEPT: dict[str, Any] = {"retain_commits": 1, "archive_after": 2}

SOUND: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "version 9, copy on write, cleaned and archived": (HIVE, KEPT),
    "version 9, merge on read, compacted, with a metadata table": (
        MOR | HIVE,
        {"record_type": "SPARK", "metadata_table": True, "compact_after": 3},
    ),
    "version 9, parquet blocks": (MOR, {"record_type": "SPARK", "log_block": "parquet"}),
    "version 8, another index": (MOR | HIVE | {"version": 8, "index": "SIMPLE"}, {}),
    "version 6, merge on read": (MOR | HIVE | {"version": 6}, {}),
}


def examined(path: Path) -> Diagnosis:
    def counted(url: str) -> int:
        return sum(batch.num_rows for batch in HudiRs(url).batches())

    return validate_table(Storage.open(path), True, {"hudi-rs": counted})


def written(session: SparkSession, folder: Path, kind: str) -> Path:
    table, write = SOUND[kind]
    peer = PeerTable(session, folder, HudiTable("t", ("k", "n"), ("o",), buckets=2, **table))
    for step in (FIRST, SECOND, DELETE, LAST):
        peer.by_hudi(step, HudiWrite(**write))
    return Path(peer.path)


@pytest.mark.parametrize("kind", SOUND)
def test_nothing_is_found_on_a_sound_table(
    kind: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    diagnosis = examined(written(hudi_session, tmp_path, kind))
    assert diagnosis.findings == ()
    assert len(set(diagnosis.rows.values())) == 1
    assert len(diagnosis.rows) == 2


def newest(table: Path, pattern: str) -> Path:
    found = [p for p in table.rglob(pattern) if ".hoodie/" not in str(p)]
    return max((p for p in found if p.suffix != ".crc"), key=lambda p: p.stat().st_mtime_ns)


def lose_a_base_file(table: Path) -> None:
    newest(table, "*.parquet").unlink()


def cut_a_log(table: Path) -> None:
    log = newest(table, ".*.log.*")
    log.write_bytes(log.read_bytes()[:-20])


def leave_a_file_of_no_instant(table: Path) -> None:
    base = newest(table, "*.parquet")
    file_id, token, _ = base.name.split("_")
    shutil.copy(base, base.with_name(f"{file_id}_{token}_20200101000000000.parquet"))


def lose_partition_metadata(table: Path) -> None:
    newest(table, ".hoodie_partition_metadata").unlink()


def edit_properties(table: Path) -> None:
    properties = table / ".hoodie" / "hoodie.properties"
    properties.write_text(
        properties.read_text().replace("hoodie.table.name=t", "hoodie.table.name=u")
    )


def lose_the_metadata_table(table: Path) -> None:
    shutil.rmtree(table / ".hoodie" / "metadata")


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (lose_a_base_file, "file-missing"),
    (cut_a_log, "log-damaged"),
    (leave_a_file_of_no_instant, "orphan"),
    (lose_partition_metadata, "partition-metadata-missing"),
    (edit_properties, "checksum-wrong"),
    (lose_the_metadata_table, "metadata-table-stale"),
]


def test_each_damage_is_found_by_its_name(hudi_session: SparkSession, tmp_path: Path) -> None:
    kind = "version 9, merge on read, compacted, with a metadata table"
    table = written(hudi_session, tmp_path / "sound", kind)
    for damage, name in DAMAGES:
        copy = shutil.copytree(table, tmp_path / damage.__name__)
        damage(copy)
        found = examined(copy)
        names = {finding.name for finding in found.findings}
        assert any(one.startswith(name) for one in names), (damage.__name__, names)
