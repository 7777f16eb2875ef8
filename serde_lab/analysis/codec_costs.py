"""Derives the cost of a record, or of a value of a type, for each strategy: CPU µs by verb, and bytes.

A type's cost is marginal: the cost of a batch with one bool column and eight columns of the type, minus the
cost of a batch with the bool column alone, divided by eight, round by round. Input is a codec run's summary
and its rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import fsum
from statistics import median
from typing import Any

from serde_lab.analysis.cell_values import Rounds

VERBS = ("from_arrow", "encode", "decode", "to_arrow")

_PREFIX = "codec."


@dataclass(frozen=True, slots=True)
class CodecCost:
    """CPU microseconds and bytes of one record, or of one value if `group` is "type".

    `write_us` is from_arrow plus encode and `read_us` is decode plus to_arrow: each strategy decides which of
    the two verbs does the work. Each time is a median over rounds, so sums are not those of the verbs'
    medians. `columns`, `type` and `string_share` identify the case.
    """

    arm: str
    group: str
    rows: int
    columns: int
    type: str
    string_share: float | None
    verbs_us: Mapping[str, float]
    write_us: float
    read_us: float
    both_us: float
    bytes: float

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "verbs_us": dict(self.verbs_us)}


def codec_costs(
    summary: Mapping[str, Any], cases: Sequence[Mapping[str, Any]], timed: Mapping[str, Rounds]
) -> list[CodecCost]:
    """The cost of every case for every arm, marginal for types; arms without a timing are left out.

    `timed` has the rounds of each arm with a timing that can be shown.
    """
    found = []
    for arm in summary["arms"]:
        measured = [
            one
            for number, case in enumerate(cases, start=1)
            if (one := _measured(arm, timed.get(arm["arm"], {}), number, case)) is not None
        ]
        # the batch with the bool column alone, which every type's batch also has, by rows
        bare = {
            one.case["rows"]: one
            for one in measured
            if one.case["group"] == "type" and one.case["columns"] == 1
        }
        for one in measured:
            if one.case["group"] != "type":
                found.append(_cost(arm["arm"], one))
            elif one.case["columns"] > 1 and one.case["rows"] in bare:
                found.append(_cost(arm["arm"], _margin(one, bare[one.case["rows"]])))
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


@dataclass(frozen=True, slots=True)
class _Measured:
    """A case of one arm: microseconds of a record by round and verb, and bytes."""

    case: Mapping[str, Any]
    by_round: Mapping[int, Mapping[str, float]]
    bytes: float


def _measured(
    arm: Mapping[str, Any], rounds: Rounds, number: int, case: Mapping[str, Any]
) -> _Measured | None:
    commit = next((one for one in arm["commits"] if one["n"] == number), None)
    if commit is None or not commit["rows"]:
        return None
    per_record = 1e6 / commit["rows"]
    by_round = {
        n: {
            verb: per_record * (time.cpu_s if (time := one.phases.get(_PREFIX + verb)) else 0.0)
            for verb in VERBS
        }
        for n, values in rounds.items()
        for one in values.commits
        if one.n == number and one.phases
    }
    if not by_round:
        return None
    return _Measured(case, by_round, commit["frame_bytes"] / commit["rows"])


def _margin(one: _Measured, bare: _Measured) -> _Measured:
    """What each further column takes, round by round."""
    more = one.case["columns"] - bare.case["columns"]
    common = sorted(one.by_round.keys() & bare.by_round.keys())
    return _Measured(
        {**one.case, "columns": more, "string_share": None},
        {
            n: {verb: (one.by_round[n][verb] - bare.by_round[n][verb]) / more for verb in VERBS}
            for n in common
        },
        (one.bytes - bare.bytes) / more,
    )


def _cost(arm: str, one: _Measured) -> CodecCost:
    def together(*verbs: str) -> float:
        return median(fsum(times[verb] for verb in verbs) for times in one.by_round.values())

    return CodecCost(
        arm=arm,
        group=one.case["group"],
        rows=one.case["rows"],
        columns=one.case["columns"],
        type=one.case["type"],
        string_share=one.case["string_share"],
        verbs_us={verb: together(verb) for verb in VERBS},
        write_us=together("from_arrow", "encode"),
        read_us=together("decode", "to_arrow"),
        both_us=together(*VERBS),
        bytes=one.bytes,
    )
