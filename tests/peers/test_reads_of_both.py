"""Every kind of read gives the same rows by `serde_lab.read`, Apache Hudi and hudi-rs, on one history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from serde_lab.errors import OptionError
from serde_lab.pipeline.read import open_table, parse_read_options, plan_read
from serde_lab.verify.contents import fingerprint, first_difference
from serde_lab.verify.readers import HudiRs
from tests.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.hudi_reads import HudiSnapshot, read_as_of, read_incremental
from tests.peers.lab_writer import LabWriter
from tests.peers.peer_tables import DELETE, FIRST, LAST, SECOND, PeerTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

QUERY = "hoodie.datasource.query.type"
KEY = ("k", "n")


def ours(path: str, **options: str) -> pa.Table:
    plan = plan_read(open_table(path), parse_read_options(options))
    batches = [batch for found in plan.slices for batch in plan.batches(found)]
    return pa.Table.from_batches(batches, plan.schema)


def data_of(table: pa.Table) -> pa.Table:
    return table.select([name for name in table.column_names if not name.startswith("_hoodie")])


def assert_same(one: pa.Table, other: pa.Table) -> None:
    one, other = data_of(one), data_of(other)
    assert fingerprint(one) == fingerprint(other), first_difference(one, other, KEY)


def by_hudi(snapshot: HudiSnapshot) -> pa.Table:
    with snapshot:
        return snapshot.table()


@pytest.mark.parametrize("by", ["serde_lab", "Apache Hudi"])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_every_kind_of_read(kind: str, by: str, hudi_session: SparkSession, tmp_path: Path) -> None:
    table = PeerTable(
        hudi_session,
        tmp_path,
        HudiTable("t", KEY, ("o",), table_type=kind, buckets=2),  # type: ignore[arg-type]
    )
    lab = LabWriter(table)
    for step in (FIRST, SECOND, DELETE, LAST):
        if by == "serde_lab":
            lab.step(step)
        else:
            table.by_hudi(step, HudiWrite())
    path, session = table.path, hudi_session
    done = open_table(path).timeline().completed()
    assert len(done) == 4
    for instant in done:
        then = ours(path, **{"as.of.instant": instant.time})
        assert_same(then, by_hudi(read_as_of(session, path, instant.time)))
        assert_same(then, HudiRs(path, as_of=instant.time).table())
    assert ours(path, **{"as.of.instant": done[0].time}).num_rows == 90
    for instant in done[:-1]:
        begin = instant.completion_time or ""
        bounds = {QUERY: "incremental", "hoodie.datasource.read.begin.instanttime": begin}
        changed = ours(path, **bounds)
        assert 0 < changed.num_rows < 90
        assert_same(changed, by_hudi(read_incremental(session, path, begin)))
    optimised = ours(path, **{QUERY: "read_optimized"})
    assert_same(optimised, by_hudi(HudiSnapshot(session, path, {QUERY: "read_optimized"})))
    assert_same(ours(path), by_hudi(HudiSnapshot(session, path)))


def test_what_was_cleaned_is_refused_where_hudi_gives_less(
    hudi_session: SparkSession, tmp_path: Path
) -> None:
    table = PeerTable(hudi_session, tmp_path, HudiTable("t", KEY, ("o",), buckets=2))
    for step in (FIRST, SECOND, LAST):
        table.by_hudi(step, HudiWrite(retain_commits=1))
    first = open_table(table.path).timeline().completed()[0]
    with pytest.raises(OptionError, match="cleaned"):
        ours(table.path, **{"as.of.instant": first.time})
