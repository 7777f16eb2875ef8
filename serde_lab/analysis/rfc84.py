"""Sets a run beside what was published for RFC-84: four quantities, each with a verdict from its interval.

Three sources are kept apart. The RFC's own text promises one figure, of total time. The merged pull requests
that claim and design the RFC (12550, 12697) measured a proof of concept. The four figures of pull request
12722 are those of a prototype on Flink, which was closed without being merged (60 million rows of lineitem
with 20 million keys, MOR upsert, 8 write tasks). Input is a run's summary; intervals need its rounds.

A run may have several pairs of arms: Avro and the typed row both one record at a time, as in Flink, and both
by column; and both with another index. Only arms of one execution and one topology are compared. The figures
of 12697 and 12722 are those of the simple bucket index; with another one only the RFC's own text applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from serde_lab.analysis.cell_values import Rounds, by_round, median_together
from serde_lab.analysis.ratios import Ratio, outward, paired_ratio, signed
from serde_lab.measure import phases

RFC_SOURCE = 'the RFC\'s text, under Rollout/Adoption Plan: "Total write time decreased up to 25%."'
SOURCE = "apache/hudi pull request 12722, a prototype that was closed without being merged"
MERGED_SOURCE = (
    "apache/hudi pull requests 12550 and 12697, which claim and design the RFC and are merged: a proof of"
    " concept with the simple bucket index. Pull request 12796, which implements the RFC, is merged too; of"
    " its text only the beginning was at hand, which describes this workload and ends before its figures"
)
PROTOTYPE_GB, PROTOTYPE_ROWS = (19.4, 13.6), 60_000_000
"""What the prototype sent between operators with Avro and with the typed row, and its rows."""
RFC_MOST = -0.25
"""The greatest change of total time that the RFC promises."""
MERGED_SERIALISE, MERGED_TOTAL = -0.702, -0.15
"""CPU samples of serialising (12550), and "total write time decreased by 15%" (12697)."""

ROW_BY_ROW, BY_COLUMN = "row by row", "by column"
_BUCKET = "bucket"
_INDEX = {"consistent": "consistent hashing", "state": "Flink's state"}
"""How a topology finds file groups, where it is not the simple bucket index."""

_NOTHING = "nothing"

_ROUNDED = 0.0005
"""Published changes are rounded to a tenth of a per cent."""

ClaimVerdict = Literal["agrees", "contradicts", "cannot tell", "not the same thing"]
VERDICT_RULE = (
    "The verdict follows from the 95 % interval of the change over paired rounds; bytes are exact. Where the"
    " RFC's text gives a range, the interval agrees if it lies inside, and contradicts if it lies outside."
    " Otherwise it agrees if it holds the prototype's figure and not zero, and contradicts if it leaves that"
    " figure out. In all other cases, such as a single round, it cannot tell. CPU is not the same thing: here"
    " verbs are Python's and include converting; there they are samples of Kryo and of Flink's serialisers."
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One quantity: `before` with Avro, `after` with the typed row, and the changes that were published.

    `low` to `high` is the 95 % interval of the change, None where a single round gives none. `rfc_change` is
    the prototype's change, `rfc_most` what the RFC's text promises at most, `merged` what the merged pull
    requests say; None where one says nothing. `pair` says how both arms work: row by row or by column, and
    with which index unless it is the simple bucket index.
    """

    quantity: str
    before: float
    after: float
    unit: str
    rfc_change: float | None
    low: float | None = None
    high: float | None = None
    rfc_most: float | None = None
    is_alike: bool = True
    doubt: str = ""
    """How many rounds more would show that there is a change; "" if the interval shows one."""
    merged: float | None = None
    pair: str = BY_COLUMN
    mean_change: float | None = None
    """The geometric mean of the rounds' changes, which the interval is of; None for quantities without
    rounds."""

    @property
    def change(self) -> float:
        """The relative change: by the rounds, or else after / before - 1."""
        return self.after / self.before - 1 if self.mean_change is None else self.mean_change

    @property
    def verdict(self) -> ClaimVerdict:
        """What the interval, as it is shown, says of the published figure, by `VERDICT_RULE`."""
        if not self.is_alike:
            return "not the same thing"
        if self.shown is None:
            return "cannot tell"
        low, high = self.shown
        if self.rfc_most is not None:
            least, most = self.rfc_most, 0.0
        elif self.rfc_change is not None:
            least, most = self.rfc_change - _ROUNDED, self.rfc_change + _ROUNDED
        else:
            return "not the same thing"
        if high < least or low > most:
            return "contradicts"
        inside = least <= low and high < most
        held = self.rfc_most is None
        return "agrees" if (inside or held) and not low <= 0 <= high else "cannot tell"

    @property
    def shown(self) -> tuple[float, float] | None:
        """The interval in tenths of a per cent, its ends rounded outwards; that of exact bytes as it is."""
        if self.low is None or self.high is None:
            return None
        return (self.low, self.high) if self.low == self.high else outward(self.low, self.high, 3)

    @property
    def promised(self) -> str:
        """What the RFC's own text says of the quantity."""
        return _NOTHING if self.rfc_most is None else f"up to {percentage(self.rfc_most)}"

    @property
    def said_of_prototype(self) -> str:
        """What the prototype's pull request says of the quantity."""
        return _NOTHING if self.rfc_change is None else percentage(self.rfc_change)

    @property
    def said_when_merged(self) -> str:
        """What the merged pull requests say of the quantity."""
        return _NOTHING if self.merged is None else percentage(self.merged)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "change": self.change, "verdict": self.verdict}


def is_rfc84(content: Mapping[str, Any]) -> bool:
    """Whether a scenario asks for this workload: lineitem with its keys on a third of their range."""
    return bool((content.get("data") or {}).get("key_range", "whole") != "whole")


def claims(
    summary: Mapping[str, Any],
    content: Mapping[str, Any],
    timed: Mapping[str, Rounds],
) -> list[Claim]:
    """The four quantities of each pair of arms: row by row, then by column, and so for each topology.

    Empty for another workload, or if no pair has valid timings. Row by row, `before` is the arm whose records
    travel in envelopes of their own, if there is one. CPU times and intervals come from the rounds in
    `timed`, by arm.
    """
    if not is_rfc84(content):
        return []
    whole = str((content.get("topology") or {}).get("name", _BUCKET))
    by_topology: dict[str, list[Mapping[str, Any]]] = {}
    for arm in summary["arms"]:
        by_topology.setdefault(str((arm["options"] or {}).get("topology", whole)), []).append(arm)
    found: list[Claim] = []
    for topology, arms in by_topology.items():
        for execution, words in (("row", ROW_BY_ROW), ("batch", BY_COLUMN)):
            before, after = (_first(arms, name, execution) for name in ("avro", "internal_row"))
            if before is None or after is None:
                continue
            claims_of_pair = _of_pair(before, after, timed)
            pair = words
            if topology != _BUCKET:
                pair = f"{words}, {_INDEX.get(topology, topology)}"
                claims_of_pair = [replace(c, rfc_change=None, merged=None) for c in claims_of_pair]
            found += [replace(one, pair=pair) for one in claims_of_pair]
    return found


def _of_pair(
    before: Mapping[str, Any], after: Mapping[str, Any], timed: Mapping[str, Rounds]
) -> list[Claim]:
    first, second = (timed.get(arm["arm"], {}) for arm in (before, after))
    wrote, read = ((_cpu_s(first, verbs), _cpu_s(second, verbs)) for verbs in (_WRITE, _READ))
    sent = tuple((arm["frame_bytes"] or 0) / 1e6 for arm in (before, after))
    took = tuple(arm["seconds"]["median"] for arm in (before, after))
    exact = sent[1] / sent[0] - 1 if sent[0] else None
    old, new = by_round(first, "seconds"), by_round(second, "seconds")
    ratio = paired_ratio(new, old)
    low, high = _interval(ratio)
    doubt = "" if ratio is None else ratio.doubt
    found = [
        Claim("serialise, CPU", *wrote, "s", -0.799, is_alike=False, merged=MERGED_SERIALISE),
        Claim("deserialise, CPU", *read, "s", -0.958, is_alike=False),
        Claim("bytes between operators", sent[0], sent[1], "MB", -0.299, exact, exact),
        Claim(
            *("total time", took[0], took[1], "s", -0.311, low, high, RFC_MOST),
            merged=MERGED_TOTAL,
            doubt=doubt,
            mean_change=None if ratio is None else ratio.value - 1,
        ),
    ]
    return [one for one in found if one.before > 0]


def _interval(ratio: Ratio | None) -> tuple[float | None, float | None]:
    """The 95 % interval of the change in seconds; None below two common rounds."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return None, None
    return ratio.low - 1, ratio.high - 1


def rounds_said(summary: Mapping[str, Any]) -> str:
    """The number of rounds that the figures rest on, in words; one round is a single sample."""
    rounds = min((arm["rounds"] for arm in summary["arms"] if arm["rounds"]), default=0)
    return "a single sample" if rounds == 1 else f"medians of {rounds} rounds"


def rfc84_json(
    found: Sequence[Claim], summary: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """For `show --format json`; empty for another workload."""
    if not found:
        return {}
    return {
        "source": SOURCE,
        "rfc_source": RFC_SOURCE,
        "merged_source": MERGED_SOURCE,
        "samples": rounds_said(summary),
        "rows": settings.get("rows"),
        "different_keys": settings.get("different_keys"),
        "claims": [claim.to_json() for claim in found],
    }


def percentage(share: float) -> str:
    """A change in per cent, one decimal, with its sign."""
    return f"{signed(100 * share, '+z.1f')} %"


_WRITE = ("from_arrow", "encode")
_READ = ("decode", "read_columns", "to_arrow")
"""A format that decodes lazily does its work where columns are read."""


def _first(
    arms: Sequence[Mapping[str, Any]], strategy: str, execution: str
) -> Mapping[str, Any] | None:
    """The first timed arm of a strategy and an execution; one with envelopes of their own comes first."""
    found = [
        arm
        for arm in arms
        if arm["strategy"] == strategy
        and arm["seconds"] is not None
        and arm["options"].get("execution") == execution
    ]
    found.sort(key=lambda arm: _own(arm, "envelope") != "record")
    return next(iter(found), None)


def _own(arm: Mapping[str, Any], option: str) -> object:
    """A strategy's own option, which some runs store beside the common ones."""
    return {**arm["options"], **(arm["options"].get("own") or {})}.get(option)


def _cpu_s(rounds: Rounds, verbs: tuple[str, ...]) -> float:
    """CPU seconds of these verbs over all stages; serialising includes the strategy's conversions."""
    return median_together(rounds.values(), lambda name: phases.split(name)[1] in verbs, "cpu_s")
