"""Defines the tables and keys of a scenario file, with their types, limits and defaults.

`scenarios/README.md` explains every key, and a test checks that the two agree. `consistency` checks
combinations of keys. Python names are the file's, except that `[[setup]]`, `[[commit]]`, `[[arm]]`,
`[[gate.limit]]` and `[[dataset]]` are `setups`, `timed`, `arms`, `limits` and `datasets`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_serializer

from serde_lab.inputs.event_time import EVENT_TS
from serde_lab.records.partition_time import PREFIX
from serde_lab.runs.model import ArmKind
from serde_lab.scenario.sections import (
    ArmOptions,
    Batch,
    Codec,
    Columns,
    Gate,
    Measure,
    Name,
    ScenarioSection,
    SearchSection,
    Settings,
    Shapes,
    ShapesData,
    Stream,
    Sweep,
)
from tpch import REFRESHED_SHARE, TABLES

Index = Literal[
    "BUCKET", "BLOOM", "SIMPLE", "GLOBAL_BLOOM", "GLOBAL_SIMPLE", "INMEMORY", "FLINK_STATE"
]
TopologyName = Literal[
    "bucket", "consistent", "state", "bloom", "legacy", "step1", "step2", "step3", "compatible",
    "bulk", "append",
]  # fmt: skip
BY_HASH = ("bucket", "consistent")
"""Topologies in which the hash of a key determines its file group, as the bucket index does."""
RECORDLESS = ("bulk", "append")
"""Topologies that make no records and therefore use no strategy."""
TableName = Literal[
    "region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"
]
QueryName = Literal["q1", "q3", "q5", "q6", "q10", "q12", "q14", "q18"]
PlainControl = Literal["sql_merge", "pandas_udf", "arrow_udf", "rdd_cloudpickle"]
FormatControl = Literal["delta_merge", "iceberg_merge"]
ReadControl = Literal["hudi_rs", "duckdb_scan"]
Control = Literal[
    "exchange_only", "spark_native", "parquet_floor", "work_floor",
    PlainControl, FormatControl, ReadControl,
]  # fmt: skip
WORK_FLOOR = "work_floor"
"""The control that does the work of an arm without SerDe, shuffle and JVM."""
PLAIN_CONTROLS: tuple[str, ...] = get_args(PlainControl)
"""Controls that upsert into a folder of plain Parquet files, as a PySpark user would by hand."""
FORMAT_CONTROLS: tuple[str, ...] = get_args(FormatControl)
"""Controls that upsert into a table of another format, by its own `MERGE INTO`."""
UPSERT_CONTROLS = (*PLAIN_CONTROLS, *FORMAT_CONTROLS)
READ_CONTROLS: tuple[str, ...] = get_args(ReadControl)
"""Controls that only read: a reader in Rust, and a scan of the same rows as plain Parquet files."""
TablePeer = Literal[
    "hudi_avro", "hudi_spark", "hudi_one_exchange", "hudi_spark_tuned", "hudi_spark_tuned_before"
]
RecordPeer = Literal["hudi_avro_record", "hudi_indexed_record", "hudi_spark_record"]
Peer = Literal[TablePeer, RecordPeer]
RECORD_PEERS: tuple[str, ...] = get_args(RecordPeer)
"""Peers that write no table: Apache Hudi's record classes, for `measure.exchange = "none"`."""
Factor = Literal[
    "representation", "execution", "framing", "integrity", "merging", "table", "topology", "source",
    "settings", "shuffle",
]  # fmt: skip


class TpchData(ScenarioSection):
    """`[data]` with `source = "tpch"`: a TPC-H table, generated once and kept."""

    source: Literal["tpch"]
    table: TableName
    scale_factor: Annotated[float, Field(gt=0, le=100_000)]
    key: Columns = ()
    keyless: bool = False
    partition: Columns = ()
    ordering: Columns = ()
    input_partitions: Annotated[int, Field(ge=1, le=10_000)] = 8
    seed: int = 1
    key_range: Literal["whole", "third"] = "whole"
    refresh: bool = False

    @property
    def record_key(self) -> tuple[str, ...]:
        """The key columns: those of the file, else the table's primary key; empty if `keyless`."""
        return () if self.keyless else self.key or TABLES[self.table].primary_key

    @property
    def own_ordering(self) -> tuple[str, ...]:
        """Ordering columns that the source has; none where event_ts is to be added."""
        return () if self.ordering == (EVENT_TS,) else self.ordering


class ParquetData(ScenarioSection):
    """`[data]` with `source = "parquet"`: the user's own files."""

    source: Literal["parquet"]
    path: Annotated[str, Field(min_length=1)]
    key: Columns = ()
    keyless: bool = False
    partition: Columns = ()
    ordering: Columns = ()
    input_partitions: Annotated[int, Field(ge=1, le=10_000)] = 8
    seed: int = 1

    @property
    def record_key(self) -> tuple[str, ...]:
        """The key columns; empty if rows have no keys."""
        return self.key

    @property
    def own_ordering(self) -> tuple[str, ...]:
        """Ordering columns that the source has; none where event_ts is to be added."""
        return self.ordering


Data = Annotated[TpchData | ParquetData | ShapesData, Field(discriminator="source")]


class Merging(ScenarioSection):
    """How a table merges. An arm may have its own, whose given keys replace those of `[table]`."""

    merge_mode: Literal["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"] = "EVENT_TIME_ORDERING"
    partial_update: Literal["", "IGNORE_DEFAULTS", "FILL_UNAVAILABLE"] = ""
    unavailable_value: str = ""
    delete_field: str = ""
    delete_marker: str = ""
    merger_classes: Columns = ()


class Files(ScenarioSection):
    """The kind of a table's files. An arm may have its own, whose given keys replace those of `[table]`."""

    type: Literal["COPY_ON_WRITE", "MERGE_ON_READ"] = "COPY_ON_WRITE"
    codec: Literal["zstd", "gzip", "snappy", "lz4", "uncompressed"] = "zstd"
    codec_level: int | None = None
    log_blocks: Literal["avro", "parquet"] | None = None

    @property
    def level(self) -> int | None:
        """The codec's level. It is always explicit, because pyarrow's default for gzip is 9."""
        return DEFAULT_LEVELS.get(self.codec) if self.codec_level is None else self.codec_level

    @property
    def given(self) -> dict[str, Any]:
        """The given keys, and None for keys of `[table]` that no longer apply beside them."""
        given = super().given
        if "codec" in given:
            given = {"codec_level": None, **given}
        if given.get("type") == "COPY_ON_WRITE":
            given = {"log_blocks": None, **given}
        return given


class TableSection(Merging, Files):
    """`[table]`: the Hudi table that every arm writes."""

    version: Literal[9, 6] = 9
    index: Index = "BUCKET"
    buckets: Annotated[int, Field(ge=1, le=1000)] = 8
    bucket_fields: Columns = ()
    hive_style: bool = False
    url_encode: bool = False
    time_folders: dict[str, str] = Field(default_factory=dict)

    @property
    def time_properties(self) -> dict[str, str]:
        """`time_folders` as Hudi's properties."""
        return {f"{PREFIX}{key}": value for key, value in self.time_folders.items()}


DEFAULT_LEVELS: Mapping[str, int] = {"zstd": 1, "gzip": 6}
LEVELS: Mapping[str, tuple[int, int]] = {"zstd": (1, 22), "gzip": (1, 9)}


class Dataset(ScenarioSection):
    """`[[dataset]]`: one more table, which every cell writes after that of `[data]`.

    Loading adds the keys that it shares with the file (`datasets`), so that it is complete here.
    """

    name: Name
    data: Data
    setups: tuple[Batch, ...] = Field(default=(), alias="setup")
    timed: tuple[Batch, ...] = Field(alias="commit", min_length=1)
    table: TableSection = TableSection()


class TopologySection(ScenarioSection):
    """`[topology]`: the chain of stages and hops. An arm may have its own."""

    name: TopologyName = "bucket"
    tasks: Annotated[int, Field(ge=0, le=1000)] = 0
    sort: Literal["none", "partition", "global"] = "none"
    batch_mb: Annotated[float, Field(gt=0, le=10**6)] = 256.0
    buffer_mb: Annotated[float, Field(gt=0, le=10**6)] = 1024.0

    @property
    def makes_records(self) -> bool:
        """Whether it makes records and therefore uses a strategy."""
        return self.name not in RECORDLESS


class Arm(ScenarioSection):
    """`[[arm]]`: what is measured. Exactly one of `strategy`, `control` and `peer` is given."""

    name: Name
    strategy: Annotated[str, Field(min_length=1)] | None = None
    control: Control | None = None
    peer: Peer | None = None
    frames_of: str | None = None
    changes: Factor | None = None
    note: str = ""
    merging: Merging | None = None
    table: Files | None = None
    topology: TopologySection | None = None
    source_reader: Literal["auto", "spark"] = "auto"
    shuffle: Literal["dataframe", "rdd"] = "dataframe"
    up_to: Annotated[float, Field(gt=0)] | None = None
    settings: Settings = Field(default_factory=dict)
    options: ArmOptions = ArmOptions()

    @field_serializer("merging", "table")
    def _as_given(self, section: ScenarioSection | None) -> dict[str, Any] | None:
        # dumped defaults would look as if the file gave them
        return None if section is None else section.model_dump(mode="json", exclude_unset=True)

    @property
    def stated_settings(self) -> dict[str, str]:
        """`settings` with the texts that Apache Hudi and Spark expect."""
        return {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in self.settings.items()
        }

    @property
    def write_settings(self) -> dict[str, str]:
        """The settings that are options of each write."""
        return {k: v for k, v in self.stated_settings.items() if k.startswith("hoodie.")}

    @property
    def session_settings(self) -> dict[str, str]:
        """The settings that are fixed when a Spark session starts."""
        return {k: v for k, v in self.stated_settings.items() if not k.startswith("hoodie.")}

    @property
    def kind(self) -> ArmKind:
        """Strategy, control or peer, by the key that is given."""
        if self.control is not None:
            return "control"
        return "strategy" if self.peer is None else "peer"

    @property
    def subject(self) -> str:
        """The name of the strategy, control or peer."""
        return self.strategy or self.control or self.peer or ""


class Scenario(ScenarioSection):
    """A whole scenario file. `loading` builds it and also checks combinations of keys."""

    name: Name
    title: str
    question: str
    data: Data
    setups: tuple[Batch, ...] = Field(default=(), alias="setup")
    timed: tuple[Batch, ...] = Field(alias="commit", min_length=1)
    stream: Stream | None = None
    table: TableSection = TableSection()
    datasets: tuple[Dataset, ...] = Field(default=(), alias="dataset")
    queries: tuple[QueryName, ...] = ()
    topology: TopologySection = TopologySection()
    arms: tuple[Arm, ...] = Field(alias="arm", min_length=1)
    reference: str
    measure: Measure = Measure()
    codec: Codec = Codec()
    sweep: Sweep | None = None
    shapes: Shapes | None = None
    search: SearchSection | None = None
    gate: Gate = Gate()

    @property
    def commits(self) -> tuple[Batch, ...]:
        """The timed writes in order: those of the file, or a stream's micro-batches."""
        return self.timed if self.stream is None else self.timed[:1] * self.stream.batches

    @property
    def batches(self) -> tuple[Batch, ...]:
        """All writes in order, untimed ones first."""
        return (*self.setups, *self.commits)

    @property
    def named_batches(self) -> tuple[tuple[str, Batch], ...]:
        """All writes in order, each with its key: `setup.1`, `commit.1` and so on."""
        setups = [(f"setup.{n}", batch) for n, batch in enumerate(self.setups, 1)]
        return (*setups, *((f"commit.{n}", batch) for n, batch in enumerate(self.commits, 1)))

    @property
    def ordering(self) -> tuple[str, ...]:
        """The ordering columns of the table: those of `[data]`, else event_ts.

        Empty if rows have no key, or if no batch is derived and `[data]` names no column.
        """
        if self.data.keyless:
            return ()
        derived = any(batch.derived for batch in self.batches)
        return self.data.own_ordering or ((EVENT_TS,) if derived else ())

    @property
    def only_reads(self) -> bool:
        """Whether no timed commit writes rows: they read and compact the set-up table."""
        return not any(batch.writes for batch in self.commits)

    @property
    def codec_only(self) -> bool:
        """Whether records are only encoded and decoded, and nothing is written."""
        return self.measure.exchange == "none"

    def rows_of(self, source_rows: int) -> tuple[int, ...]:
        """About how many rows each of `batches` has, for a source of `source_rows` rows."""
        if isinstance(self.data, TpchData) and self.data.refresh:
            pair = math.ceil(source_rows * REFRESHED_SHARE)
            return (source_rows, *(pair for _ in self.batches[1:]))
        return tuple(batch.rows_of(source_rows) for batch in self.batches)

    def topology_of(self, arm: Arm | None) -> TopologySection:
        """The topology of `arm`: its own, else the scenario's."""
        return self.topology if arm is None or arm.topology is None else arm.topology

    def table_of(self, arm: Arm | None) -> TableSection:
        """The table that `arm` writes.

        It is the scenario's table with the arm's own `merging` and `table`, and with the index that the
        arm's topology needs.
        """
        update: dict[str, Any] = {"index": self._index(self.topology_of(arm))}
        for own in () if arm is None else (arm.merging, arm.table):
            update |= {} if own is None else own.given
        return self.table.model_copy(update=update)

    def _index(self, topology: TopologySection) -> str:
        if topology.name in BY_HASH:
            return "BUCKET"
        if self.table.index != "BUCKET":
            return self.table.index
        return "BLOOM" if topology.name == "bloom" else "SIMPLE"

    def key_is_global(self, arm: Arm | None) -> bool:
        """Whether a key is unique in the whole table of `arm`, not only in its partition."""
        index = self.table_of(arm).index
        return bool(self.data.partition) and index.startswith(("GLOBAL", "INMEMORY", "FLINK"))

    def arm(self, name: str) -> Arm:
        """The arm with this name, which must exist."""
        return next(arm for arm in self.arms if arm.name == name)

    def to_json(self) -> dict[str, Any]:
        """The whole model with all defaults, under the names of the file, as JSON values."""
        return self.model_dump(mode="json", by_alias=True)
