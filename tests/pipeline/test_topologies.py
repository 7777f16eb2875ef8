"""Every topology writes the table that DuckDB says, whatever the strategy and the index."""

from __future__ import annotations

import json
import tempfile
import uuid
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serde_lab.errors import OptionError, TableError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline import write as pipeline_write
from serde_lab.pipeline.assign.stages import bootstrap_tasks
from serde_lab.pipeline.commit.coordinator import Coordinator
from serde_lab.pipeline.exchange.in_process import InProcessExchange, by_target
from serde_lab.pipeline.exchange.routing import Hop, Task
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.plan import make_plan
from serde_lab.pipeline.source.schema import avro_schema
from serde_lab.pipeline.topologies import BOOTSTRAP, TOPOLOGIES, Stage
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.serde.interface import Frames
from serde_lab.serde.pickle.records import BoundPickle
from serde_lab.table.files.log_file import LogTarget, LogWriter
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.data_files import Writing
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.pipeline.lab_table import (
    BACK,
    FIRST,
    GONE,
    MOR,
    PARTITIONED,
    SECOND,
    STRATEGIES,
    LabTable,
    Rows,
    table_of,
)
from tests.pipeline.test_random_histories import ROWS

pytestmark = pytest.mark.slow

ASSIGNING = [
    ("state", "SIMPLE"),
    ("state", "FLINK_STATE"),
    ("bloom", "BLOOM"),
    ("bloom", "GLOBAL_BLOOM"),
    ("legacy", "SIMPLE"),
    ("step1", "BLOOM"),
    ("step2", "INMEMORY"),
    ("step3", "SIMPLE"),
    ("compatible", "GLOBAL_SIMPLE"),
]
NO_BUCKETS = {"hoodie.bucket.index.num.buckets": None}


def options_of(topology: str, index: str, **options: Any) -> dict[str, str | None]:
    """The options of every write to a table without buckets."""
    given: dict[str, str | None] = {
        **NO_BUCKETS,
        "hoodie.index.type": index,
        "serde_lab.topology": topology,
        "hoodie.upsert.shuffle.parallelism": "3",
        "hoodie.delete.shuffle.parallelism": "3",
        "hoodie.insert.shuffle.parallelism": "3",
        "hoodie.bulkinsert.shuffle.parallelism": "3",
        **options,
    }
    if topology == "step3":
        # a few rows fill a file group's buffer, and a few more the whole one
        given |= {"write.batch.size": "0.0005", "write.task.max.size": "0.001"}
    return given


def moved(rows: Rows, path: str) -> pa.Table:
    """`rows` in a partition of that name."""
    data = table_of(rows)
    place = data.schema.get_field_index("p")
    return data.set_column(place, "p", pa.array([path] * len(rows), pa.string()))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("topology", "index"), ASSIGNING)
def test_upserts_and_deletes_give_the_oracles_table(
    topology: str, index: str, strategy: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, options_of(topology, index, **{"serde_lab.strategy": strategy}))
    table.upsert(FIRST)
    commit = table.upsert(SECOND)
    assert (commit.rows_updated, commit.rows_inserted) == (3, 2)
    table.delete(GONE)
    table.upsert(BACK)
    table.check()


@pytest.mark.parametrize(
    ("topology", "index"),
    [("state", "FLINK_STATE"), ("bloom", "BLOOM"), ("step1", "SIMPLE"), ("step3", "SIMPLE")],
)
def test_logs_of_partitions_take_updates(topology: str, index: str, tmp_path: Path) -> None:
    table = LabTable(tmp_path, {**options_of(topology, index), **PARTITIONED, **MOR})
    table.upsert(FIRST)
    table.upsert(SECOND)
    table.delete(GONE)
    table.upsert([("c", n, 7, 1.0) for n in range(9)])
    table.check()


@pytest.mark.parametrize("partitions", [{}, PARTITIONED], ids=["one", "partitions"])
@pytest.mark.parametrize("small_files", ["", "0"], ids=["joins small files", "new files"])
@pytest.mark.parametrize(
    ("index", "ways"), [("BLOOM", ("bloom", "step1", "state")), ("SIMPLE", ("legacy", "state"))]
)
def test_a_key_that_a_log_deletes_comes_back_to_its_file_group_by_any_topology(
    index: str, ways: tuple[str, ...], small_files: str, partitions: dict[str, str], tmp_path: Path
) -> None:
    """In another one it would be there twice, for writers that see Bloom filters alone."""
    given = {"hoodie.parquet.small.file.limit": small_files} if small_files else {}
    for number, (back, again) in enumerate(product(ways, repeat=2)):
        options = options_of(ways[0], index, **MOR, **partitions, **given)
        table = LabTable(tmp_path / str(number), options)
        table.upsert([("a", n, 1, 1.0) for n in range(8)])
        table.delete([("a", 3, 0, None), ("a", 4, 0, None)], serde_lab__topology=ways[0])
        table.upsert([("a", 3, 5, 2.0), ("z", 0, 1, 1.0)], serde_lab__topology=back)
        table.upsert([("a", 3, 6, 3.0), ("a", 4, 6, 3.0)], serde_lab__topology=again)
        table.check()
        keys = (
            plan_snapshot(table.table, columns=["_hoodie_record_key"]).read().column(0).to_pylist()
        )
        assert len(keys) == len(set(keys)) == 9, (back, again)
    table.check()


@pytest.mark.parametrize("by_hudi", [False, True], ids=["ours", "as by Hudi"])
@pytest.mark.parametrize(
    ("topology", "index", "kind", "strategy"),
    [
        ("state", "FLINK_STATE", {}, "internal_row"),
        ("state", "GLOBAL_SIMPLE", MOR, "avro"),
        ("state", "FLINK_STATE", MOR, "pickle"),
        ("bloom", "GLOBAL_BLOOM", {}, "arrow"),
    ],
)
def test_under_a_global_index_a_record_leaves_its_partition(
    topology: str, index: str, kind: dict[str, str], strategy: str, by_hudi: bool, tmp_path: Path
) -> None:
    """Also in a table of Apache Hudi's, which does not store its index."""
    options = options_of(topology, index, **{"serde_lab.strategy": strategy})
    table = LabTable(tmp_path, {**options, **PARTITIONED, **kind})
    table.upsert(moved([("a", n, 10, 1.0) for n in range(12)], "x"))
    if by_hudi:
        table.leave_as_hudi()
    table.upsert(
        pa.concat_tables(
            [
                moved([("a", 0, 11, 2.0), ("a", 1, 9, 2.0), ("a", 2, 10, 2.0)], "y"),
                # twice in one batch: the later value says where it stands
                moved([("a", 3, 12, 3.0)], "y"),
                moved([("a", 3, 11, 4.0), ("b", 0, 5, 1.0)], "z"),
                moved([("b", 0, 4, 2.0)], "x"),
            ]
        )
    )
    table.check()
    # and back again, where its old place is
    table.upsert(moved([("a", 0, 12, 5.0), ("a", 3, 1, 5.0)], "x"))
    table.check()


def test_a_record_leaves_its_partition_by_an_ordering_value_in_a_struct(tmp_path: Path) -> None:
    options = options_of(
        "state", "GLOBAL_SIMPLE", **{"hoodie.datasource.write.precombine.field": "s.o"}
    )
    table = LabTable(tmp_path, {**options, **PARTITIONED})
    kind = pa.struct([("o", pa.int64())])
    for when, path in ((1, "x"), (3, "y"), (2, "x")):
        rows = moved([("a", 0, when, 1.0)], path)
        table.upsert(rows.append_column("s", pa.array([{"o": when}], kind)))
    found = plan_snapshot(table.table).read()
    assert found["_hoodie_partition_path"].to_pylist() == ["y"]
    assert found["s"].to_pylist() == [{"o": 3}]


@pytest.mark.filterwarnings(
    "ignore:column p. a record that stays:serde_lab.errors.PortabilityWarning"
)
@pytest.mark.parametrize("by_hudi", [False, True], ids=["ours", "as by Hudi"])
@pytest.mark.parametrize(
    ("topology", "index", "option", "kind", "strategy"),
    [
        ("state", "GLOBAL_SIMPLE", "simple", {}, "internal_row"),
        ("state", "GLOBAL_SIMPLE", "simple", MOR, "avro"),
        ("step3", "GLOBAL_SIMPLE", "simple", {}, "pickle"),
        ("bloom", "GLOBAL_BLOOM", "bloom", {}, "arrow"),
    ],
)
def test_or_stays_in_it_where_the_write_says_so(
    topology: str,
    index: str,
    option: str,
    kind: dict[str, str],
    strategy: str,
    by_hudi: bool,
    tmp_path: Path,
) -> None:
    stays = {
        f"hoodie.{option}.index.update.partition.path": "false",
        "serde_lab.strategy": strategy,
    }
    table = LabTable(tmp_path, {**options_of(topology, index, **stays), **PARTITIONED, **kind})
    table.upsert(moved([("a", n, 10, 1.0) for n in range(4)], "x"))
    if by_hudi:
        table.leave_as_hudi()
    table.upsert(
        pa.concat_tables(
            [
                # the later one stands, the late one does not, and new keys are where they say
                moved([("a", 0, 11, 2.0), ("a", 1, 9, 2.0), ("b", 0, 5, 1.0)], "y"),
                moved([("a", 2, 12, 3.0)], "x"),
            ]
        )
    )
    rows = plan_snapshot(table.table).read()
    found = {
        (one["_hoodie_record_key"], one["_hoodie_partition_path"], one["p"], one["x"])
        for one in rows.to_pylist()
    }
    assert found == {
        ("k:a,n:0", "x", "y", 2.0),
        ("k:a,n:1", "x", "x", 1.0),
        ("k:a,n:2", "x", "x", 3.0),
        ("k:a,n:3", "x", "x", 1.0),
        ("k:b,n:0", "y", "y", 1.0),
    }
    table.delete(moved([("a", 0, 0, 0.0)], "y"))
    assert plan_snapshot(table.table).read().num_rows == 4


def test_the_option_of_another_index_is_refused(tmp_path: Path) -> None:
    option = {"hoodie.bloom.index.update.partition.path": "false"}
    table = LabTable(tmp_path, {**options_of("state", "SIMPLE", **option), **PARTITIONED})
    with pytest.raises(
        OptionError, match="is for the index GLOBAL_BLOOM, but the table t has SIMPLE"
    ):
        table.upsert(FIRST)


def test_without_one_it_stays_there_and_is_elsewhere_too(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {**options_of("state", "SIMPLE"), **PARTITIONED})
    table.upsert(moved([("a", 0, 10, 1.0)], "x"))
    table.upsert(moved([("a", 0, 11, 2.0)], "y"))
    table.upsert(moved([("a", 0, 12, 3.0)], "x"))
    assert table.check().rows.rows == 2


def test_inserts_fill_small_files_before_they_open_new_ones(tmp_path: Path) -> None:
    table = LabTable(tmp_path, options_of("state", "SIMPLE"))
    before = {stat.fileId for stat in table.upsert(FIRST).stats}
    commit = table.upsert([("n", n, 1, 1.0) for n in range(30)])
    assert {stat.fileId for stat in commit.stats} == before
    full = table.upsert(
        [("m", n, 1, 1.0) for n in range(30)], hoodie__parquet__small__file__limit=0
    )
    assert not {stat.fileId for stat in full.stats} & before
    table.check()


def test_a_file_group_takes_so_many_records(tmp_path: Path) -> None:
    sizes = {"hoodie.copyonwrite.insert.auto.split": "false"}
    sizes |= {"hoodie.copyonwrite.insert.split.size": "5"}
    table = LabTable(tmp_path, options_of("bloom", "BLOOM", **sizes))
    commit = table.upsert(FIRST)
    assert len(commit.stats) >= 9
    assert max(stat.numWrites for stat in commit.stats) == 5
    table.check()


def test_a_record_may_be_in_one_file_group_only(tmp_path: Path) -> None:
    """Of a key that comes twice, and is new, both records go to one place."""
    table = LabTable(tmp_path, options_of("state", "SIMPLE"))
    table.upsert([("a", 1, n % 3, float(n)) for n in range(9)])
    assert table.check().rows.rows == 1


def test_mini_batches_are_written_as_buffers_fill(tmp_path: Path) -> None:
    table = LabTable(tmp_path, options_of("step3", "SIMPLE"))
    many: Rows = [("a", n % 20, n % 7, float(n)) for n in range(90)]
    table.upsert(many, serde_lab__rows_per_frame=1)
    table.upsert(many, serde_lab__rows_per_frame=1)
    table.check()
    # one file a group and instant, whatever was flushed on the way
    files = table.table.view().files.base_files
    assert len({(base.file_id, base.instant) for base in files}) == len(files)


@pytest.mark.parametrize("topology", ["state", "step3"])
def test_a_new_key_behind_a_flush_of_updates_goes_to_a_base_file(
    topology: str, tmp_path: Path
) -> None:
    """The index does not look into logs, and would take a key that is only there for new again."""
    given = {**MOR, "hoodie.upsert.shuffle.parallelism": "1", "serde_lab.rows_per_frame": "1"}
    table = LabTable(tmp_path, options_of(topology, "SIMPLE", **given))
    table.upsert([("a", n, 1, 0.0) for n in range(60)])
    table.upsert([*(("a", n, 2, 0.0) for n in range(60)), ("z", 0, 2, 0.0)])
    table.upsert([("z", 0, 3, 1.0)])
    table.check()


@pytest.mark.parametrize(("topology", "index"), [("state", "SIMPLE"), ("bloom", "BLOOM")])
def test_a_file_group_that_is_only_a_log_is_refused_by_indexes_that_see_none(
    topology: str, index: str, tmp_path: Path
) -> None:
    """As Flink begins file groups, with an index of its own."""
    table = LabTable(tmp_path, {**options_of(topology, index), **MOR})
    table.upsert([("a", 0, 1, 0.0)])
    begin_by_a_log(table.table, "k:z,n:0", table_of([("z", 0, 5, 1.0)]))
    with pytest.raises(TableError, match=f"has no base file yet, .* the {index} index"):
        table.upsert([("z", 0, 9, 2.0)])


def begin_by_a_log(table: HoodieTable, key: str, row: pa.Table) -> None:
    """Commit a file group that has only a log, with one row."""
    schema = table.data_schema()
    assert schema is not None
    coordinator = Coordinator(table)
    with coordinator.hold("a writer like Flink's"):
        instant = coordinator.begin("upsert")
        writer = LogWriter(
            table.storage,
            Writing(instant.time, "0-1-0", table.timeline().path(instant)),
            table_name=table.config.name,
            table_version=table.config.version,
            data_schema=schema,
            target=LogTarget("", f"{uuid.uuid4()}-0", instant.time),
        )
        writer.append(pa.array([key]), row.combine_chunks().to_batches()[0])
        avro = json.dumps(avro_schema(schema, table.config.name))
        coordinator.complete(instant, "upsert", writer.close(), avro)


WRITES = st.lists(st.tuples(st.sampled_from(["upsert", "upsert", "delete"]), ROWS), max_size=4)


@given(
    kind=st.sampled_from(ASSIGNING),
    partitioned=st.booleans(),
    in_logs=st.booleans(),
    strategy=st.sampled_from(STRATEGIES),
    per_frame=st.sampled_from(["1", "3", "0"]),
    parallelism=st.sampled_from(["1", "3", "5"]),
    paths=st.lists(st.sampled_from(["x", "y"]), min_size=60, max_size=60),
    writes=WRITES,
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_history_through_any_topology(
    kind: tuple[str, str],
    partitioned: bool,
    in_logs: bool,
    strategy: str,
    per_frame: str,
    parallelism: str,
    paths: list[str],
    writes: list[tuple[str, Rows]],
) -> None:
    options = options_of(*kind) | {
        "serde_lab.strategy": strategy,
        "serde_lab.rows_per_frame": per_frame,
        "hoodie.upsert.shuffle.parallelism": parallelism,
        "hoodie.delete.shuffle.parallelism": parallelism,
    }
    with tempfile.TemporaryDirectory() as folder:
        # under a global index, a record leaves a partition by a delete; some refuse that in logs
        in_logs = in_logs and not (partitioned and kind[1].startswith(("GLOBAL", "IN", "FLINK")))
        given = {**(MOR if in_logs else {}), **(PARTITIONED if partitioned else {})}
        table = LabTable(Path(folder), {**options, **given})
        left = iter(paths)
        for operation, rows in [("upsert", FIRST[:3]), *writes]:
            data = table_of(rows)
            place = data.schema.get_field_index("p")
            named = pa.array([next(left) for _ in rows], pa.string())
            data = data.set_column(place, "p", named)
            # what a key that a log deletes and a late row brings back reads as depends on its file group,
            # which the oracle does not know
            if operation == "upsert" or in_logs:
                table.upsert(data)
            else:
                table.delete(data.select(["k", "n", "p"]))
        table.check()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hoodie.index.type": "BUCKET"}, "the bucket of the key determines them"),
        ({"serde_lab.topology": "bucket", **NO_BUCKETS}, "bucket, but the table t has the index"),
        ({"serde_lab.topology": "bulk", **NO_BUCKETS}, "only does bulk_insert"),
        (
            {"serde_lab.topology": "bloom", "hoodie.index.type": "INMEMORY", **NO_BUCKETS},
            "which have no Bloom filter",
        ),
        (
            {
                "serde_lab.topology": "legacy",
                "hoodie.index.type": "INMEMORY",
                **PARTITIONED,
                **NO_BUCKETS,
            },
            "may move to another partition",
        ),
        ({"hoodie.clustering.inline": "true", **NO_BUCKETS}, "hoodie.clustering.inline"),
        ({"write.batch.size": "1", **NO_BUCKETS}, "is for serde_lab.topology=step3"),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: dict[str, str], says: str, tmp_path: Path
) -> None:
    table = LabTable(
        tmp_path, {"serde_lab.topology": "state", "hoodie.index.type": "SIMPLE", **options}
    )
    with pytest.raises(OptionError, match=says):
        table.upsert(FIRST)


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_a_topology_can_be_drawn(name: str) -> None:
    topology = TOPOLOGIES[name]
    drawing = topology.diagram()
    assert drawing.startswith(f"{topology.name}: ")
    assert drawing.count("==>") == 2 * (len(topology.hops) + topology.arrives_sorted)
    assert all(stage.label in drawing for stage in topology.stages)


def test_index_records_are_counted_apart(tmp_path: Path) -> None:
    table = LabTable(tmp_path, options_of("state", "SIMPLE"))
    table.upsert(FIRST)
    seen: list[InProcessExchange] = []
    run = InProcessExchange.run

    def watched(self: InProcessExchange, plan: Any) -> Any:
        seen.append(self)
        return run(self, plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcessExchange, "run", watched)
        table.upsert(SECOND)
    (exchange,) = seen
    counted = {
        stage: [r.counters for r in exchange.reports if r.stage == stage]
        for stage in ("map", "bootstrap", "assign", "reduce")
    }
    total = {
        stage: sum(one.get(name, 0) for one in counted[stage])
        for stage, name in (
            ("map", "rows"),
            ("bootstrap", "index_rows"),
            ("assign", "rows"),
            ("reduce", "rows"),
        )
    }
    assert total == {"map": 8, "bootstrap": 42, "assign": 8, "reduce": 8}
    arrived = sum(one.get("index_rows", 0) for one in counted["assign"])
    assert arrived == 42


@pytest.mark.parametrize(("topology", "index"), [("state", "FLINK_STATE"), ("legacy", "SIMPLE")])
def test_shards_bound_memory_and_change_no_row(
    topology: str, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pipeline_write.make_plan
    monkeypatch.setattr(pipeline_write, "make_plan", lambda *given: replace(made(*given), shards=3))
    table = LabTable(tmp_path, {**options_of(topology, index), **PARTITIONED})
    table.upsert(FIRST)
    table.upsert(SECOND)
    table.delete(GONE)
    table.upsert(BACK)
    table.check()


@pytest.mark.parametrize(("rows_per_frame", "encodes"), [("1", False), ("3", True)])
def test_a_task_that_only_routes_copies_frames_of_one_record(
    rows_per_frame: str, encodes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"serde_lab.rows_per_frame": rows_per_frame, "serde_lab.strategy": "pickle"}
    table = LabTable(tmp_path, {**options_of("legacy", "SIMPLE", **given), **PARTITIONED})
    table.upsert(FIRST[:9])
    options = parse_options(table.all_options, table.table.config)
    rows = table_of(FIRST)
    prepared = PreparedWrite.of(Storage.open(table.path), rows.schema, options)
    instant = prepared.coordinator.table.timeline().new_instant("commit")
    plan = make_plan(prepared.coordinator.table, prepared.schema, options, instant)
    topology = TOPOLOGIES["legacy"]

    def run(number: int, batches: list[pa.RecordBatch]) -> pa.Table:
        task = Task(plan, 0, TaskTimeline("t"), topology.hops[number])
        return pa.Table.from_batches(topology.stages[number].work(task, batches))

    sent = run(0, rows.to_batches())
    encoded = []
    encode = BoundPickle.encode

    def noted(bound: BoundPickle, *args: Any) -> Frames:
        encoded.append(args)
        return encode(bound, *args)

    monkeypatch.setattr(BoundPickle, "encode", noted)
    relayed = run(1, sent.to_batches())
    assert bool(encoded) is encodes
    if not encodes:
        assert relayed.drop_columns("target").equals(sent.drop_columns("target"))
        assert len(set(relayed.column("target").to_pylist())) > 1


def test_another_attempt_assigns_the_same_whatever_arrives_first(tmp_path: Path) -> None:
    table = LabTable(tmp_path, options_of("state", "SIMPLE", **{"serde_lab.rows_per_frame": "2"}))
    table.upsert(FIRST[:9])
    options = parse_options(table.all_options, table.table.config)
    rows = table_of([*FIRST, *SECOND])
    prepared = PreparedWrite.of(Storage.open(table.path), rows.schema, options)
    instant = prepared.coordinator.table.timeline().new_instant("commit")
    plan = make_plan(prepared.coordinator.table, prepared.schema, options, instant)
    topology = TOPOLOGIES["state"]
    hop = topology.hops[0]

    def run(stage: Stage, hop: Hop, task: int, batches: list[pa.RecordBatch]) -> list[Any]:
        return list(stage.work(Task(plan, task, TaskTimeline("t"), hop), batches))

    sent = run(topology.stages[0], hop, 0, rows.to_batches())
    sent += run(BOOTSTRAP, hop, 0, [pa.record_batch({"id": list(range(bootstrap_tasks(plan)))})])
    for task in range(plan.targets):
        arrived = [part for one in sent for target, part in by_target(one) if target == task]
        frames = [batch.slice(n, 1) for batch in arrived for n in range(batch.num_rows)]
        first = run(topology.stages[1], topology.hops[1], task, arrived)
        again = run(topology.stages[1], topology.hops[1], task, frames[::-1])
        assert sum(batch.num_rows for batch in first) > 1
        assert pa.Table.from_batches(first).equals(pa.Table.from_batches(again))
