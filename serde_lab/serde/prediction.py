"""Predicts a strategy's cost for a schema from what its author expected before measuring it.

`expected_costs.toml` has the expectations for the package's own strategies: bytes and nanoseconds of a value
by kind. A plug-in may have them in its module, as `EXPECTED` for its default execution and
`EXPECTED_ROW_NS` or `EXPECTED_BATCH_NS` for the other; without them it has no prediction.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import pyarrow as pa

from serde_lab.records.schema import plain_type
from serde_lab.serde.interface import Strategy

Costs = Mapping[str, tuple[float | None, float | None]]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected CPU time of the four verbs, and bytes in frames, for one record."""

    serde_cpu_us_per_record: float
    frame_bytes_per_record: float


def expected_costs(strategy: Strategy, execution: str) -> Costs:
    """Bytes and nanoseconds of a value by kind, and of a record without columns under "record"."""
    own = _own_costs()
    if strategy.name in own:
        costs = own[own[strategy.name].get("like", strategy.name)]
        place = 1 + strategy.executions.index(execution)
        return {kind: (found[0], found[place]) for kind, found in costs.items()}
    module = sys.modules[type(strategy).__module__]
    expected = dict(getattr(module, "EXPECTED", {}))
    if execution != strategy.executions[0]:
        ns = getattr(module, f"EXPECTED_{execution.upper()}_NS", {})
        expected = {kind: (size, ns.get(kind)) for kind, (size, _) in expected.items()}
    return expected


@cache
def _own_costs() -> dict[str, Any]:
    text = (files("serde_lab.serde") / "expected_costs.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


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
    name = re.split(r"[<(\[]", str(plain_type(t)))[0]
    return {"decimal128": "decimal", "date32": "date"}.get(name, name)
