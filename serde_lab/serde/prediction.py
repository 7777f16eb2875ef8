"""Predicts a strategy's cost for a schema from what its author expected before measuring it.

Strategies' modules hold the expectations as data: `EXPECTED` has bytes and nanoseconds of a value by kind,
for the default execution; `EXPECTED_ROW_NS` or `EXPECTED_BATCH_NS` has the nanoseconds for the other. A
plug-in without them has no prediction.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pat

from serde_lab.records.schema import is_binary, is_decimal, is_list, is_string
from serde_lab.serde.interface import Strategy

Costs = Mapping[str, tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected CPU time of the four verbs, and bytes in frames, for one record."""

    serde_cpu_us_per_record: float
    frame_bytes_per_record: float


def expected_costs(strategy: Strategy, execution: str) -> Costs:
    """Bytes and nanoseconds of a value by kind, and of a record without columns under "record"."""
    module = sys.modules[type(strategy).__module__]
    expected = dict(getattr(module, "EXPECTED", {}))
    if execution != strategy.executions[0]:
        ns = getattr(module, f"EXPECTED_{execution.upper()}_NS", {})
        expected = {kind: (size, ns.get(kind)) for kind, (size, _) in expected.items()}
    return expected


def predict(strategy: Strategy, execution: str, data: pa.Schema) -> Prediction | None:
    """The sum over the columns of `data`; None if the author has no expectation for one of them."""
    costs = expected_costs(strategy, execution)
    kinds = ["record", *(kind_of(field.type) for field in data)]
    found = [costs.get(kind) for kind in kinds]
    sizes = [cost[0] for cost in found if cost is not None and cost[0] is not None]
    times = [cost[1] for cost in found if cost is not None and cost[1] is not None]
    if len(sizes) < len(kinds) or len(times) < len(kinds):
        return None
    return Prediction(sum(times) / 1e3, sum(sizes))


def kind_of(t: pa.DataType) -> str:
    """The kind of a type: its key in the expectations."""
    for name, test in (
        ("bool", pat.is_boolean),
        ("int8", pat.is_int8),
        ("int16", pat.is_int16),
        ("int32", pat.is_int32),
        ("int64", pat.is_int64),
        ("float", pat.is_float32),
        ("double", pat.is_float64),
        ("decimal", is_decimal),
        ("string", is_string),
        ("binary", is_binary),
        ("date", pat.is_date32),
        ("timestamp", pat.is_timestamp),
        ("list", is_list),
        ("map", pat.is_map),
    ):
        if test(t):
            return name
    return "struct"
