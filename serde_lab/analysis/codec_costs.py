"""Derives the cost of a record, or of a value of a type, for each strategy: CPU µs by verb, and bytes.

A type's cost is marginal: the cost of a batch with one bool column and eight columns of the type, minus the
cost of a batch with the bool column alone, divided by eight. Input is a codec run's summary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

VERBS = ("from_arrow", "encode", "decode", "to_arrow")

_PREFIX = "codec."


@dataclass(frozen=True, slots=True)
class CodecCost:
    """CPU microseconds and bytes of one record, or of one value if `group` is "type".

    `write_us` is from_arrow plus encode and `read_us` is decode plus to_arrow: each strategy decides which of
    the two verbs does the work. `columns`, `type` and `string_share` identify the case.
    """

    arm: str
    group: str
    rows: int
    columns: int
    type: str
    string_share: float | None
    verbs_us: Mapping[str, float]
    bytes: float

    @property
    def write_us(self) -> float:
        """Converting in and serialising."""
        return self.verbs_us["from_arrow"] + self.verbs_us["encode"]

    @property
    def read_us(self) -> float:
        """Deserialising and converting out."""
        return self.verbs_us["decode"] + self.verbs_us["to_arrow"]

    @property
    def both_us(self) -> float:
        """All four verbs."""
        return self.write_us + self.read_us

    def to_json(self) -> dict[str, Any]:
        sums = {"write_us": self.write_us, "read_us": self.read_us, "both_us": self.both_us}
        return {**asdict(self), "verbs_us": dict(self.verbs_us), **sums}


def codec_costs(summary: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> list[CodecCost]:
    """The cost of every case for every arm, marginal for types; arms without a timing are left out."""
    found = []
    for arm in summary["arms"]:
        measured = {
            number: cost
            for number, case in enumerate(cases, start=1)
            if (cost := _cost(arm, number, case)) is not None
        }
        # the batch with the bool column alone, which every type's batch also has, by rows
        bare = {
            cost.rows: cost
            for cost in measured.values()
            if cost.group == "type" and cost.columns == 1
        }
        for cost in measured.values():
            if cost.group != "type":
                found.append(cost)
            elif cost.columns > 1 and cost.rows in bare:
                found.append(_margin(cost, bare[cost.rows]))
    return found


def records_of(costs: Sequence[CodecCost]) -> list[CodecCost]:
    """The costs of the scenario's own records: one for each batch size and arm."""
    return [cost for cost in costs if cost.group == "record"]


def usual_rows(costs: Sequence[CodecCost]) -> int:
    """The batch size that type tables show: the largest up to 10,000, the pipeline's size."""
    sizes = sorted({cost.rows for cost in costs if cost.group == "type"})
    return max((rows for rows in sizes if rows <= 10_000), default=sizes[0] if sizes else 0)


def by_type(costs: Sequence[CodecCost], rows: int) -> dict[str, dict[str, CodecCost]]:
    """Type -> arm -> the cost of one value, in batches of `rows` rows."""
    found: dict[str, dict[str, CodecCost]] = {}
    for cost in costs:
        if cost.group == "type" and cost.rows == rows:
            found.setdefault(cost.type, {})[cost.arm] = cost
    return found


def by_width(costs: Sequence[CodecCost]) -> dict[tuple[int, float], dict[str, CodecCost]]:
    """(columns, share of strings) -> arm -> the cost of one record."""
    found: dict[tuple[int, float], dict[str, CodecCost]] = {}
    for cost in costs:
        if cost.group == "width":
            found.setdefault((cost.columns, cost.string_share or 0.0), {})[cost.arm] = cost
    return found


def _cost(arm: Mapping[str, Any], number: int, case: Mapping[str, Any]) -> CodecCost | None:
    commit = next((one for one in arm["commits"] if one["n"] == number), None)
    if commit is None or not commit["phases"] or not commit["rows"]:
        return None
    per_record = 1e6 / commit["rows"]
    times = {verb: commit["phases"].get(_PREFIX + verb, {}).get("cpu_s", 0.0) for verb in VERBS}
    return CodecCost(
        arm=arm["arm"],
        group=case["group"],
        rows=case["rows"],
        columns=case["columns"],
        type=case["type"],
        string_share=case["string_share"],
        verbs_us={verb: seconds * per_record for verb, seconds in times.items()},
        bytes=commit["frame_bytes"] / commit["rows"],
    )


def _margin(cost: CodecCost, bare: CodecCost) -> CodecCost:
    more = cost.columns - bare.columns
    verbs = {v: (cost.verbs_us[v] - bare.verbs_us[v]) / more for v in VERBS}
    return CodecCost(
        *(cost.arm, cost.group, cost.rows, more, cost.type, None),
        verbs,
        (cost.bytes - bare.bytes) / more,
    )
