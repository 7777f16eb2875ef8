"""Defines made-up rows, `[data]` with `source = "shapes"`, and the factors of `[shapes]` that vary them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from serde_lab.inputs.event_time import EVENT_TS
from serde_lab.inputs.shaped_rows import HOT_BUCKETS, PARTITION, Keys, Nesting, Shape, schema_of
from serde_lab.scenario.sections import SOME, Columns, Name, ScenarioSection, Share

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
        return Shape(
            rows=self.rows,
            columns=self.columns,
            strings=self.strings,
            string_bytes=self.string_bytes,
            nulls=self.nulls,
            decimals=self.decimals,
            nesting=self.nesting,
            nested=self.nested,
            keys=self.keys,
            partitions=self.partitions,
            hot_bucket=self.skew == "bucket",
            seed=self.seed,
        )

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
    each with as many values.
    """

    name: Name
    key: Annotated[str, Field(min_length=1)]
    values: Annotated[tuple[int | float | str, ...], Field(min_length=2)]
    also: dict[str, tuple[int | float | str, ...]] = Field(default_factory=dict)

    def settings(self, place: int) -> dict[str, int | float | str]:
        """Every key that has its value number `place`, with that value."""
        return {self.key: self.values[place], **{key: v[place] for key, v in self.also.items()}}

    def is_end(self, place: int) -> bool:
        """Whether a value is an extreme: the first or last of numbers, and any of words."""
        words = any(isinstance(value, str) for value in self.values)
        return words or place in (0, len(self.values) - 1)


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
