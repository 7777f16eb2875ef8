"""What a record, or a value of a type, costs each strategy: microseconds by verb, and bytes.

Owns the step from the cases of a codec run to costs. A type's cost is marginal: a batch of eight such
columns beside one of bool, less that column alone, over eight. Works on a run's summary; must not know
terminals or pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from serde_lab.analysis.rounding import text

VERBS = ("from_arrow", "encode", "decode", "to_arrow")
COLUMNS = ("arm", "rows", "write µs", "read µs", "both µs", *(f"{v} µs" for v in VERBS), "bytes")

_PREFIX = "codec."


@dataclass(frozen=True, slots=True)
class CodecCost:
    """CPU microseconds and bytes of one record, or of one value where `group` is "type".

    `write_us` is from_arrow and encode, `read_us` decode and to_arrow: what a strategy does in which
    of the two is its own affair. `columns`, `type` and `string_share` say which case it is.
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

    def cells(self) -> tuple[str, ...]:
        """Rounded texts under `COLUMNS`."""
        times = (self.write_us, self.read_us, self.both_us, *(self.verbs_us[v] for v in VERBS))
        texts = (text("ratio", time) for time in times)
        return (self.arm, text("count", self.rows), *texts, f"{self.bytes:.1f}")

    def to_json(self) -> dict[str, Any]:
        """For `show --format json`."""
        sums = {"write_us": self.write_us, "read_us": self.read_us, "both_us": self.both_us}
        return {**asdict(self), "verbs_us": dict(self.verbs_us), **sums}


def codec_costs(summary: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> list[CodecCost]:
    """Every arm's cost of every case, types as their margin; arms without a timing are in none."""
    found = []
    for arm in summary["arms"]:
        measured = {
            number: cost
            for number, case in enumerate(cases, start=1)
            if (cost := _cost(arm, number, case)) is not None
        }
        # the column of bool that stands beside every type, by the rows of the batch
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
    """The costs of the scenario's own records, one a size of batch and arm."""
    return [cost for cost in costs if cost.group == "record"]


def usual_rows(costs: Sequence[CodecCost], most: int = 10_000) -> int:
    """The size of batch that tables of types show: the largest up to `most`, as the pipeline has."""
    sizes = sorted({cost.rows for cost in costs if cost.group == "type"})
    return max((rows for rows in sizes if rows <= most), default=sizes[0] if sizes else 0)


def by_type(costs: Sequence[CodecCost], rows: int) -> dict[str, dict[str, CodecCost]]:
    """Type -> arm -> the cost of a value, in batches of `rows`."""
    found: dict[str, dict[str, CodecCost]] = {}
    for cost in costs:
        if cost.group == "type" and cost.rows == rows:
            found.setdefault(cost.type, {})[cost.arm] = cost
    return found


def by_width(costs: Sequence[CodecCost]) -> dict[tuple[int, float], dict[str, CodecCost]]:
    """(columns, share of strings) -> arm -> the cost of a record."""
    found: dict[tuple[int, float], dict[str, CodecCost]] = {}
    for cost in costs:
        if cost.group == "width":
            found.setdefault((cost.columns, cost.string_share or 0.0), {})[cost.arm] = cost
    return found


def type_cells(costs: Sequence[CodecCost]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A table of all types: headings, then a row a type with each arm's time and bytes of a value."""
    found = by_type(costs, usual_rows(costs))
    arms = list(dict.fromkeys(cost.arm for cost in costs))
    rows = [(kind, *(_both(of.get(arm)) for arm in arms)) for kind, of in found.items()]
    return ("type", *arms), rows


def width_cells(costs: Sequence[CodecCost]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The same of all widths and shares of strings, a record each."""
    arms = list(dict.fromkeys(cost.arm for cost in costs))
    rows = [
        (str(width), f"{100 * share:g} %", *(_both(of.get(arm)) for arm in arms))
        for (width, share), of in by_width(costs).items()
    ]
    return ("columns", "strings", *arms), rows


def _both(cost: CodecCost | None) -> str:
    return text("ratio", None) if cost is None else f"{cost.both_us:.3f} µs, {cost.bytes:.0f} B"


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
