"""The shape of a scenario file: every table and key, its type, its limits and its default.

Owns the vocabulary; `scenarios/README.md` explains it key by key, and a test holds the two together.
What cannot stand together is in `consistency`. Python names are those of the file, but for the
arrays of tables: `[[setup]]`, `[[commit]]`, `[[arm]]` and `[[gate.limit]]` are `setups`, `commits`,
`arms` and `limits` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_serializer

from serde_lab.inputs.event_time import EVENT_TS
from serde_lab.records.partition_time import PREFIX, TimeRule
from tpch import TABLES

Operation = Literal[
    "bulk_insert", "upsert", "upsert_prepped", "insert", "delete", "insert_overwrite",
    "insert_overwrite_table", "delete_partition",
]  # fmt: skip
Index = Literal[
    "BUCKET", "BLOOM", "SIMPLE", "GLOBAL_BLOOM", "GLOBAL_SIMPLE", "INMEMORY", "FLINK_STATE"
]
TopologyName = Literal[
    "bucket", "state", "bloom", "legacy", "step1", "step2", "step3", "compatible", "bulk", "append"
]
RECORDLESS = ("bulk", "append")
"""Topologies in which no record is made, and so no strategy takes part."""
TableName = Literal[
    "region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"
]
Control = Literal["exchange_only", "spark_native", "parquet_floor"]
Peer = Literal["hudi_avro", "hudi_spark", "hudi_spark_tuned"]
Factor = Literal[
    "representation", "execution", "framing", "integrity", "merging", "table", "topology"
]
Kind = Literal["strategy", "control", "peer"]
ColumnType = Literal[
    "bool", "int8", "int16", "int32", "int64", "float", "double", "decimal", "string", "binary",
    "date", "timestamp", "list", "map", "struct",
]  # fmt: skip


def _one_or_many(value: object) -> object:
    """One column may stand without its brackets."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$", max_length=100)]
"""Becomes a part of the names of folders and of a dotted key, hence no dots and no separators."""
Columns = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]
Share = Annotated[float, Field(ge=0, le=1)]


_SOME = Field(min_length=1)


class Section(BaseModel):
    """One table of the file: no key but the known ones, no type but the one expected."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @property
    def given(self) -> dict[str, Any]:
        """Every key that the file gives."""
        return self.model_dump(exclude_unset=True)


class TpchData(Section):
    """`[data]` with `source = "tpch"`: a table of TPC-H, generated once and kept."""

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

    @property
    def record_key(self) -> tuple[str, ...]:
        """The key columns: those of the file, else the table's primary key; none without keys."""
        return () if self.keyless else self.key or TABLES[self.table].primary_key

    @property
    def own_ordering(self) -> tuple[str, ...]:
        """Ordering columns that the source has; none where event_ts is to be added."""
        return () if self.ordering == (EVENT_TS,) else self.ordering


class ParquetData(Section):
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
        """The key columns; none without keys."""
        return self.key

    @property
    def own_ordering(self) -> tuple[str, ...]:
        """Ordering columns that the source has; none where event_ts is to be added."""
        return self.ordering


Data = Annotated[TpchData | ParquetData, Field(discriminator="source")]


class Batch(Section):
    """`[[setup]]` or `[[commit]]`: one write. Shares are from 0 to 1; `inputs.shares` defines them."""

    operation: Operation = "upsert"
    rows: Annotated[int, Field(ge=1, le=10**12)] | None = None
    share: Annotated[float, Field(gt=0, le=10**6)] | None = None
    updates: Share = 0.0
    duplicates: Annotated[float, Field(ge=0, lt=1)] = 0.0
    late: Share = 0.0
    deletes: Share = 0.0
    path: Annotated[str, Field(min_length=1)] | None = None
    partitions: Columns = ()

    @property
    def takes_no_rows(self) -> bool:
        """Whether it only takes something away."""
        return self.operation == "delete_partition"

    @property
    def derived(self) -> bool:
        """Whether its rows are made of those of `[data]`."""
        return self.path is None and not self.takes_no_rows

    def rows_of(self, source_rows: int) -> int:
        """How many rows, for a source of `source_rows` rows: `rows`, or `share` of it, or all."""
        if self.takes_no_rows:
            return 0
        if self.rows is not None:
            return self.rows
        return max(1, int(source_rows * (1.0 if self.share is None else self.share) + 0.5))


class Merging(Section):
    """How a table merges. An arm may state its own, which differs from the table's in what it gives."""

    merge_mode: Literal["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"] = "EVENT_TIME_ORDERING"
    partial_update: Literal["", "IGNORE_DEFAULTS", "FILL_UNAVAILABLE"] = ""
    unavailable_value: str = ""
    delete_field: str = ""
    delete_marker: str = ""
    merger_classes: Columns = ()

    @property
    def merging(self) -> Merging:
        """These fields alone."""
        return Merging(**{name: getattr(self, name) for name in Merging.model_fields})


class Files(Section):
    """What files a table has. An arm may state its own, which differ from the table's in what it gives."""

    type: Literal["COPY_ON_WRITE", "MERGE_ON_READ"] = "COPY_ON_WRITE"
    codec: Literal["zstd", "gzip", "snappy", "lz4", "uncompressed"] = "zstd"
    codec_level: int | None = None
    log_blocks: Literal["avro", "parquet"] | None = None

    @property
    def level(self) -> int | None:
        """The codec's level, which is always stated: pyarrow's own default for gzip is 9."""
        return DEFAULT_LEVELS.get(self.codec) if self.codec_level is None else self.codec_level

    @property
    def files(self) -> Files:
        """These fields alone."""
        return Files(**{name: getattr(self, name) for name in Files.model_fields})

    @property
    def given(self) -> dict[str, Any]:
        """What is given here, and what of a whole table no longer holds beside it."""
        given = super().given
        if "codec" in given:
            given = {"codec_level": None, **given}
        if given.get("type") == "COPY_ON_WRITE":
            given = {"log_blocks": None, **given}
        return given


class Table(Merging, Files):
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
        """What `time_folders` says, by Hudi's names for it."""
        return {f"{PREFIX}{key}": value for key, value in self.time_folders.items()}

    @property
    def time_rule(self) -> TimeRule | None:
        """How the partition column becomes a folder; None where it stands for itself."""
        return TimeRule.from_properties(self.time_properties) if self.time_folders else None


DEFAULT_LEVELS: Mapping[str, int] = {"zstd": 1, "gzip": 6}
LEVELS: Mapping[str, tuple[int, int]] = {"zstd": (1, 22), "gzip": (1, 9)}


class Topology(Section):
    """`[topology]`: the chain of stages and hops. An arm may state its own."""

    name: TopologyName = "bucket"
    tasks: Annotated[int, Field(ge=0, le=1000)] = 0
    sort: Literal["none", "partition", "global"] = "none"
    batch_mb: Annotated[float, Field(gt=0, le=10**6)] = 256.0
    buffer_mb: Annotated[float, Field(gt=0, le=10**6)] = 1024.0

    @property
    def makes_records(self) -> bool:
        """Whether a strategy takes part."""
        return self.name not in RECORDLESS


class ArmOptions(BaseModel):
    """`[arm.options]`: what every strategy takes; any other key is the strategy's own.

    A key that is not given stays None: the default is the strategy's. `rows_per_frame` 0 means a
    whole batch.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)

    execution: Literal["row", "batch"] | None = None
    rows_per_frame: Annotated[int, Field(ge=0, le=(1 << 31) - 1)] | None = None
    max_frame_bytes: Annotated[int, Field(ge=1)] | None = None
    integrity: Literal["none", "crc32c"] | None = None

    @property
    def own(self) -> dict[str, Any]:
        """The strategy's own keys."""
        return dict(self.model_extra or {})

    @property
    def given(self) -> dict[str, Any]:
        """Every key that the file gives, common or own."""
        return self.model_dump(exclude_none=True)


class Arm(Section):
    """`[[arm]]`: what is measured; exactly one of `strategy`, `control` and `peer` says what it is."""

    name: Name
    strategy: Annotated[str, Field(min_length=1)] | None = None
    control: Control | None = None
    peer: Peer | None = None
    frames_of: str | None = None
    changes: Factor | None = None
    note: str = ""
    merging: Merging | None = None
    table: Files | None = None
    topology: Topology | None = None
    options: ArmOptions = ArmOptions()

    @field_serializer("merging", "table")
    def _as_given(self, section: Section | None) -> dict[str, Any] | None:
        # with its defaults it would say more than the file does
        return None if section is None else section.model_dump(mode="json", exclude_unset=True)

    @property
    def kind(self) -> Kind:
        """Follows from the key that is given."""
        if self.control is not None:
            return "control"
        return "strategy" if self.peer is None else "peer"

    @property
    def subject(self) -> str:
        """The name of the strategy, control or peer."""
        return self.strategy or self.control or self.peer or ""


class Measure(Section):
    """`[measure]`: how often, in what order, on how much."""

    rounds: Annotated[int, Field(ge=1, le=1000)] = 5
    warmup: Annotated[int, Field(ge=0, le=100)] = 1
    seed: Annotated[int, Field(ge=0)] = 7
    cores: Annotated[int, Field(ge=1, le=1024)] = 2
    exchange: Literal["spark", "inprocess", "none"] = "spark"
    worker_memory_mb: Annotated[int, Field(ge=64, le=10**7)] = 1024
    driver_memory_mb: Annotated[int, Field(ge=512, le=10**7)] = 4096


class Codec(Section):
    """`[codec]`: what is encoded and decoded where `measure.exchange` is "none"."""

    batch_rows: Annotated[tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], _SOME] = (
        *(1, 10, 100),
        *(1_000, 10_000, 100_000),
    )
    types: tuple[ColumnType, ...] = get_args(ColumnType)
    widths: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = (10, 20, 50, 100)
    string_shares: Annotated[tuple[Share, ...], _SOME] = (0.0, 0.25, 0.5, 1.0)
    width_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000


class Sweep(Section):
    """`[sweep]`: the whole scenario once for each value of one of its numbers."""

    key: Annotated[str, Field(min_length=1)]
    values: Annotated[tuple[int | float, ...], _SOME]


class GateLimit(Section):
    """`[[gate.limit]]`: a limit for what it names; what is left out means any."""

    arm: str | None = None
    phase: str | None = None
    metric: str | None = None
    relative: Annotated[float, Field(ge=0)] | None = None
    absolute: Annotated[float, Field(ge=0)] | None = None


class Gate(Section):
    """`[gate]`: how much worse is a regression. A key that is not given has the gate's default."""

    relative: Annotated[float, Field(ge=0)] | None = None
    absolute: Annotated[float, Field(ge=0)] | None = None
    bytes: Annotated[float, Field(ge=0)] | None = None
    memory: Annotated[float, Field(ge=0)] | None = None
    alpha: Annotated[float, Field(gt=0, lt=1)] | None = None
    metrics: Columns | None = None
    control: str | None = None
    limits: tuple[GateLimit, ...] = Field(default=(), alias="limit")


class Scenario(Section):
    """A whole file. Built by `loading`, which also checks what cannot stand together."""

    name: Name
    title: str
    question: str
    data: Data
    setups: tuple[Batch, ...] = Field(default=(), alias="setup")
    commits: tuple[Batch, ...] = Field(alias="commit", min_length=1)
    table: Table = Table()
    topology: Topology = Topology()
    arms: tuple[Arm, ...] = Field(alias="arm", min_length=1)
    reference: str
    measure: Measure = Measure()
    codec: Codec = Codec()
    sweep: Sweep | None = None
    gate: Gate = Gate()

    @property
    def batches(self) -> tuple[Batch, ...]:
        """All writes in order, untimed ones first."""
        return (*self.setups, *self.commits)

    @property
    def named_batches(self) -> tuple[tuple[str, Batch], ...]:
        """The same, each with its key: `setup.1`, `commit.1` and so on."""
        setups = [(f"setup.{n}", batch) for n, batch in enumerate(self.setups, 1)]
        return (*setups, *((f"commit.{n}", batch) for n, batch in enumerate(self.commits, 1)))

    @property
    def ordering(self) -> tuple[str, ...]:
        """The ordering columns of the table: own ones, else event_ts, else none.

        None where every batch is a file of the user's and the file names none, and where rows have no key.
        """
        if self.data.keyless:
            return ()
        derived = any(batch.derived for batch in self.batches)
        return self.data.own_ordering or ((EVENT_TS,) if derived else ())

    @property
    def codec_only(self) -> bool:
        """Whether records are encoded and decoded only, and nothing is written."""
        return self.measure.exchange == "none"

    def topology_of(self, arm: Arm | None) -> Topology:
        """How records of `arm` travel."""
        return self.topology if arm is None or arm.topology is None else arm.topology

    def table_of(self, arm: Arm | None) -> Table:
        """The table that `arm` writes: the scenario's, merging and with files as the arm says if it does,
        and with the index that its topology wants."""
        update: dict[str, Any] = {"index": self._index(self.topology_of(arm))}
        for own in () if arm is None else (arm.merging, arm.table):
            update |= {} if own is None else own.given
        return self.table.model_copy(update=update)

    def _index(self, topology: Topology) -> str:
        if topology.name == "bucket":
            return "BUCKET"
        if self.table.index != "BUCKET":
            return self.table.index
        return "BLOOM" if topology.name == "bloom" else "SIMPLE"

    def key_is_global(self, arm: Arm | None) -> bool:
        """Whether a key is told apart in the whole table of `arm`, and not in each partition."""
        index = self.table_of(arm).index
        return bool(self.data.partition) and index.startswith(("GLOBAL", "INMEMORY", "FLINK"))

    def arm(self, name: str) -> Arm:
        """The arm of that name, which must exist."""
        return next(arm for arm in self.arms if arm.name == name)

    def to_json(self) -> dict[str, Any]:
        """The whole model with all defaults, under the names of the file, as JSON values."""
        return self.model_dump(mode="json", by_alias=True)
