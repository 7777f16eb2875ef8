"""Defines sections of a scenario file: how arms work, how to measure, what to gate, and made-up rows.

`model` has the other sections and the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from serde_lab.inputs.event_time import EVENT_TS
from serde_lab.inputs.shaped_rows import HOT_BUCKETS, PARTITION, Keys, Nesting, Shape, schema_of
from serde_lab.records.operation import Operation, TableOperation

ColumnType = Literal[
    "bool", "int8", "int16", "int32", "int64", "float", "double", "decimal", "string", "binary",
    "date", "timestamp", "list", "map", "struct",
]  # fmt: skip


def _one_or_many(value: object) -> object:
    """A single value may be written without brackets."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _by_dotted_names(value: object) -> object:
    """Names whose dots TOML or `--set` took for tables are joined again."""
    return dict(_joined(value, "")) if isinstance(value, dict) else value


def _joined(table: dict[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _joined(value, f"{prefix}{key}.")
        elif isinstance(value, str | bool | int | float):
            yield f"{prefix}{key}", value
        else:
            raise PydanticCustomError(
                "setting",
                f"the value of {prefix}{key} is no text, no number, and not true or false",
            )


Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$", max_length=100)]
"""Part of folder names and of dotted keys, so it contains no dots and no separators."""
Columns = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]
Share = Annotated[float, Field(ge=0, le=1)]
SOME = Field(min_length=1)
Settings = Annotated[dict[str, Any], BeforeValidator(_by_dotted_names)]
"""Texts, numbers and flags by the names that Apache Hudi and Spark have for them."""


class ScenarioSection(BaseModel):
    """One table of the file; it accepts only known keys and only the expected types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @property
    def given(self) -> dict[str, Any]:
        """The keys that the file gives, with their values."""
        return self.model_dump(exclude_unset=True)


def _operation(value: object) -> object:
    """The operation of this name, with one error for both kinds of operation."""
    known = {str(one): one for one in (*Operation, *TableOperation)}
    if not isinstance(value, str) or value not in known:
        raise PydanticCustomError(
            "enum", "expected {expected}", {"expected": ", ".join(map(str, known))}
        )
    return known[value]


BatchOperation = Annotated[Operation | TableOperation, BeforeValidator(_operation)]


class Batch(ScenarioSection):
    """`[[setup]]` or `[[commit]]`: a write, a read or a compaction."""

    operation: BatchOperation = Operation.UPSERT
    rows: Annotated[int, Field(ge=1, le=10**12)] | None = None
    share: Annotated[float, Field(gt=0, le=10**6)] | None = None
    updates: Share = 0.0
    duplicates: Annotated[float, Field(ge=0, lt=1)] = 0.0
    late: Share = 0.0
    deletes: Share = 0.0
    path: Annotated[str, Field(min_length=1)] | None = None
    partitions: Columns = ()
    since: Annotated[int, Field(ge=1, le=10_000)] = 1
    while_writing: bool = False

    @property
    def writes(self) -> bool:
        """Whether it is a write."""
        return isinstance(self.operation, Operation)

    @property
    def write_operation(self) -> Operation:
        """The operation of a write; for a read or a compaction the one that every table takes."""
        return self.operation if isinstance(self.operation, Operation) else Operation.UPSERT

    @property
    def takes_no_rows(self) -> bool:
        """Whether it only deletes, reads or compacts, and so has no rows of its own."""
        return self.operation is Operation.DELETE_PARTITION or not self.writes

    @property
    def derived(self) -> bool:
        """Whether its rows are derived from those of `[data]`."""
        return self.path is None and not self.takes_no_rows

    @property
    def has_unique_keys(self) -> bool:
        """Whether no key occurs twice; those of the user's own files may."""
        return self.path is None and self.duplicates == 0

    def rows_of(self, source_rows: int) -> int:
        """The number of rows for a source of `source_rows` rows: `rows`, or `share` of the source, or all."""
        if self.takes_no_rows:
            return 0
        if self.rows is not None:
            return self.rows
        return max(1, int(source_rows * (1.0 if self.share is None else self.share) + 0.5))


class ArmOptions(BaseModel):
    """`[arm.options]`: the options that all strategies have; any other key is the strategy's own.

    A key that is not given stays None, and the strategy's default applies. `rows_per_frame` 0 means all
    records of a batch for one target.
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


class Measure(ScenarioSection):
    """`[measure]`: rounds and their order, the exchange, cores and memory."""

    rounds: Annotated[int, Field(ge=1, le=1000)] = 5
    warmup: Annotated[int, Field(ge=0, le=100)] = 1
    seed: Annotated[int, Field(ge=0)] = 7
    cores: Annotated[int, Field(ge=1, le=1024)] = 2
    exchange: Literal["spark", "inprocess", "none"] = "spark"
    worker_memory_mb: Annotated[int, Field(ge=64, le=10**7)] = 1024
    driver_memory_mb: Annotated[int, Field(ge=512, le=10**7)] = 4096

    @property
    def all_rounds(self) -> int:
        """The number of rounds with those that warm up."""
        return self.warmup + self.rounds


class Codec(ScenarioSection):
    """`[codec]`: what is encoded and decoded if `measure.exchange` is "none"."""

    batch_rows: Annotated[tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], SOME] = (
        *(1, 10, 100),
        *(1_000, 10_000, 100_000),
    )
    types: tuple[ColumnType, ...] = get_args(ColumnType)
    widths: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = (10, 20, 50, 100)
    string_shares: Annotated[tuple[Share, ...], SOME] = (0.0, 0.25, 0.5, 1.0)
    width_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000


class Stream(ScenarioSection):
    """`[stream]`: the timed commit is a micro-batch, which a streaming query writes `batches` times."""

    batches: Annotated[int, Field(ge=1, le=10_000)] = 30
    trigger: Literal["available_now", "processing_time"] = "available_now"
    warmup_batches: Annotated[int, Field(ge=0, le=1000)] = 3
    services: bool = True
    compact_after: Annotated[int, Field(ge=1, le=10_000)] = 5
    readers: Annotated[int, Field(ge=0, le=16)] = 0


class Sweep(ScenarioSection):
    """`[sweep]`: repeats the scenario for each value of one of its numbers.

    `also` gives other keys that change with it, each with as many values.
    """

    key: Annotated[str, Field(min_length=1)]
    values: Annotated[tuple[int | float, ...], SOME]
    also: dict[str, tuple[int | float, ...]] = Field(default_factory=dict)


class Candidate(ScenarioSection):
    """`[[search.candidate]]`: settings that are tried in an arm, its start."""

    name: Name
    arm: str
    factor: Name | None = None
    settings: Annotated[Settings, SOME]

    @property
    def arm_name(self) -> str:
        """The name of the arm that tries it."""
        return f"{self.arm}-{self.name}"

    @property
    def changed_factor(self) -> str:
        """The factor that it changes: at most one candidate of a factor is part of the combination."""
        return self.factor or self.name


class SearchSection(ScenarioSection):
    """`[search]`: tries settings in arms, by successive halving over paired rounds.

    `rounds` are those that each rung adds. `spare` is a rung's budget: how many candidates of the worse half
    it may keep because they might still be the best.
    """

    rounds: Annotated[tuple[Annotated[int, Field(ge=2, le=1000)], ...], SOME] = (3, 3, 6)
    spare: Annotated[int, Field(ge=0, le=1000)] = 4
    candidates: Annotated[tuple[Candidate, ...], SOME] = Field(alias="candidate")

    @property
    def starts(self) -> tuple[str, ...]:
        """The arms from which candidates start, in the order of the file."""
        return tuple(dict.fromkeys(one.arm for one in self.candidates))


class GateLimit(ScenarioSection):
    """`[[gate.limit]]`: a limit for the arm, phase and metric that it names; a missing one means any."""

    arm: str | None = None
    phase: str | None = None
    metric: str | None = None
    relative: Annotated[float, Field(ge=0)] | None = None
    absolute: Annotated[float, Field(ge=0)] | None = None


class Gate(ScenarioSection):
    """`[gate]`: how much worse counts as a regression. Missing keys have the gate's defaults."""

    relative: Annotated[float, Field(ge=0)] | None = None
    absolute: Annotated[float, Field(ge=0)] | None = None
    bytes: Annotated[float, Field(ge=0)] | None = None
    memory: Annotated[float, Field(ge=0)] | None = None
    alpha: Annotated[float, Field(gt=0, lt=1)] | None = None
    metrics: Columns | None = None
    control: str | None = None
    limits: tuple[GateLimit, ...] = Field(default=(), alias="limit")


_MOST_ROW_BYTES = 4 << 20


class ShapesData(ScenarioSection):
    """`[data]` with `source = "shapes"`: made once and kept."""

    source: Literal["shapes"]
    rows: Annotated[int, Field(ge=1, le=10**10)]
    columns: Annotated[int, Field(ge=2, le=2000)] = 20
    strings: Share = 0.2
    string_bytes: Annotated[int, Field(ge=1, le=1_000_000)] = 80
    nulls: Share = 0.2
    decimals: Share = 0.0
    nesting: Nesting = "none"
    nested: Share = 0.2
    keys: Keys = "long"
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 1
    skew: Literal["none", "bucket", "key"] = "none"
    versions: Annotated[int, Field(ge=2, le=10**8)] = 10_000
    ordering: Columns = ()
    input_partitions: Annotated[int, Field(ge=1, le=10_000)] = 8
    seed: int = 1

    @property
    def shape(self) -> Shape:
        """The shape of the rows, as their generator takes it."""
        alike = self.model_dump(include={field.name for field in fields(Shape)})
        return Shape(**alike, hot_bucket=self.skew == "bucket")

    @property
    def record_key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.shape.key

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns; a file does not name them."""
        return self.shape.key

    @property
    def partition(self) -> tuple[str, ...]:
        """The partition column, if there are several partitions."""
        return (PARTITION,) if self.partitions > 1 else ()

    @property
    def keyless(self) -> bool:
        """Made-up rows have keys."""
        return False

    @property
    def own_ordering(self) -> tuple[str, ...]:
        """Ordering columns that the source has; none where event_ts is to be added."""
        return () if self.ordering == (EVENT_TS,) else self.ordering


class ShapeFactor(ScenarioSection):
    """`[[shapes.factor]]`: a key and the values that it has at one point after the other.

    One of the values is the file's own, that of the middle. `also` gives other keys that change with it,
    each with as many values. `rounds` are the most rounds that each value has, () for those of
    `measure.rounds` everywhere.
    """

    name: Name
    key: Annotated[str, Field(min_length=1)]
    values: Annotated[tuple[int | float | str, ...], Field(min_length=2)]
    also: dict[str, tuple[int | float | str, ...]] = Field(default_factory=dict)
    rounds: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = ()

    def settings(self, place: int) -> dict[str, int | float | str]:
        """Every key that has its value number `place`, with that value."""
        return {self.key: self.values[place], **{key: v[place] for key, v in self.also.items()}}


class Shapes(ScenarioSection):
    """`[shapes]`: repeats the scenario with one factor changed at a time.

    `between` names the arms that also measure the values between the ends of a factor, by default all.
    """

    between: Columns = ()
    factors: Annotated[tuple[ShapeFactor, ...], SOME] = Field(alias="factor")


def shape_problems(data: ShapesData, buckets: int) -> Iterator[tuple[str, str]]:
    """Keys of `[data]` that do not fit each other or the table's buckets, each with the reason."""
    shape = data.shape
    taken = data.columns - shape.payload
    if shape.payload < 1:
        yield (
            "columns",
            f"is {data.columns}, but key and partition take {taken}: expected more than {taken}",
        )
        return
    nested = 0.0 if data.nesting == "none" else data.nested
    whole = data.strings + data.decimals + nested
    if whole > 1 + 1e-9 or shape.kinds["numbers"] < 0:
        yield (
            "strings",
            f"the shares of strings, decimals and nested columns add up to {whole:g}, expected at most 1",
        )
        return
    if shape.row_bytes > _MOST_ROW_BYTES:
        yield (
            "string_bytes",
            f"gives rows of about {shape.row_bytes:,} bytes, expected {_MOST_ROW_BYTES:,} at most",
        )
        return
    known = schema_of(shape).names
    for name in data.own_ordering:
        if name not in known:
            yield "ordering", f"the rows have no column {name!r}; leave it out, for {EVENT_TS}"
    if data.skew == "bucket" and data.keys != "long":
        yield "skew", f'"bucket" needs keys = "long", found {data.keys!r}'
    if data.skew == "bucket" and HOT_BUCKETS % buckets:
        yield "skew", f'"bucket" needs 1, 2, 4, 8 or 16 buckets, but table.buckets is {buckets}'
    if data.versions != ShapesData.model_fields["versions"].default and data.skew != "key":
        yield "versions", 'has no effect without skew = "key"'
