"""Sets what was published for RFC-84 beside a run of the same workload, with a verdict from an interval.

Two sources are kept apart. The RFC's own text promises one figure, of total time. The four figures of pull
request 12722 are those of a prototype on Flink, which was closed without being merged (60 million rows of
lineitem with 20 million keys, MOR upsert, 8 write tasks). Input is a run's summary; intervals
need its rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

from serde_lab.analysis.cell_values import Rounds, by_round
from serde_lab.analysis.ratios import Ratio, paired_ratio

RFC_SOURCE = 'the RFC\'s text, under Rollout/Adoption Plan: "Total write time decreased up to 25%."'
SOURCE = "apache/hudi pull request 12722, a prototype that was closed without being merged"
PROTOTYPE_GB, PROTOTYPE_ROWS = (19.4, 13.6), 60_000_000
"""What the prototype sent between operators with Avro and with the typed row, and its rows."""
RFC_MOST = -0.25
"""The greatest change of total time that the RFC promises."""

ClaimVerdict = Literal["agrees", "contradicts", "cannot tell", "not the same thing"]
VERDICT_RULE = (
    "The verdict follows from the 95 % interval of the change over paired rounds; bytes are exact. Where the"
    " RFC's text gives a range, the interval agrees if it lies inside, and contradicts if it lies outside."
    " Otherwise it agrees if it holds the prototype's figure and not zero, and contradicts if it leaves that"
    " figure out. In all other cases, such as a single round, it cannot tell. CPU is not the same thing: here"
    " verbs work on whole columns and include converting; there Kryo wrote records one by one."
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One quantity: `before` with Avro, `after` with the typed row, and the changes that were published.

    `low` to `high` is the 95 % interval of the change, None where a single round gives none. `rfc_change` is
    the prototype's change, `rfc_most` what the RFC's text promises at most, None where it says nothing.
    """

    quantity: str
    before: float
    after: float
    unit: str
    rfc_change: float
    low: float | None = None
    high: float | None = None
    rfc_most: float | None = None
    is_alike: bool = True
    doubt: str = ""
    """How many rounds more would show that there is a change; "" if the interval shows one."""

    @property
    def change(self) -> float:
        """The relative change: after / before - 1."""
        return self.after / self.before - 1

    @property
    def verdict(self) -> ClaimVerdict:
        """What the interval says of the published figure, by `VERDICT_RULE`."""
        if not self.is_alike:
            return "not the same thing"
        if self.low is None or self.high is None:
            return "cannot tell"
        least, most = self.rfc_change, self.rfc_change
        if self.rfc_most is not None:
            least, most = self.rfc_most, 0.0
        if self.high < least or self.low > most:
            return "contradicts"
        inside = least <= self.low and self.high < most
        held = least == most
        return "agrees" if (inside or held) and not self.low <= 0 <= self.high else "cannot tell"

    @property
    def promised(self) -> str:
        """What the RFC's own text says of the quantity."""
        return "nothing" if self.rfc_most is None else f"up to {percentage(self.rfc_most)}"

    def to_json(self) -> dict[str, Any]:
        """For `show --format json`."""
        return {**asdict(self), "change": self.change, "verdict": self.verdict}


def is_rfc84(content: Mapping[str, Any]) -> bool:
    """Whether a scenario asks for this workload: lineitem with its keys on a third of their range."""
    return bool((content.get("data") or {}).get("key_range", "whole") != "whole")


def claims(
    summary: Mapping[str, Any],
    content: Mapping[str, Any],
    timed: Mapping[str, Rounds] = MappingProxyType({}),
) -> list[Claim]:
    """The four quantities, from the first arm of `avro` and the first arm of `internal_row`.

    Empty for another workload, or if one of the two arms has no valid timing. Intervals come from the rounds
    in `timed`, by arm; without them the total time has none.
    """
    if not is_rfc84(content):
        return []
    before, after = (_first(summary, name) for name in ("avro", "internal_row"))
    if before is None or after is None:
        return []
    wrote, read = ((_cpu_s(before, verbs), _cpu_s(after, verbs)) for verbs in (_WRITE, _READ))
    sent = tuple((arm["frame_bytes"] or 0) / 1e6 for arm in (before, after))
    took = tuple(arm["seconds"]["median"] for arm in (before, after))
    exact = sent[1] / sent[0] - 1 if sent[0] else None
    old, new = (by_round(timed.get(arm["arm"], {}), "seconds") for arm in (before, after))
    ratio = paired_ratio(new, old)
    low, high = _interval(ratio)
    doubt = "" if ratio is None else ratio.doubt
    found = [
        Claim("serialise, CPU", *wrote, "s", -0.799, is_alike=False),
        Claim("deserialise, CPU", *read, "s", -0.958, is_alike=False),
        Claim("bytes between operators", sent[0], sent[1], "MB", -0.299, exact, exact),
        Claim("total time", took[0], took[1], "s", -0.311, low, high, RFC_MOST, doubt=doubt),
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
        "samples": rounds_said(summary),
        "rows": settings.get("rows"),
        "different_keys": settings.get("different_keys"),
        "claims": [claim.to_json() for claim in found],
    }


def percentage(share: float) -> str:
    """A change in per cent, one decimal, with its sign."""
    return f"{100 * share:+.1f} %".replace("-", "\N{MINUS SIGN}")


_WRITE = ("from_arrow", "encode")
_READ = ("decode", "to_arrow")


def _first(summary: Mapping[str, Any], strategy: str) -> Mapping[str, Any] | None:
    arms = (arm for arm in summary["arms"] if arm["strategy"] == strategy)
    return next((arm for arm in arms if arm["seconds"] is not None), None)


def _cpu_s(arm: Mapping[str, Any], verbs: tuple[str, ...]) -> float:
    """CPU seconds of these verbs over all stages; serialising includes the strategy's conversions."""
    return sum(
        float(times["cpu_s"])
        for name, times in (arm["phases"] or {}).items()
        if name.rpartition(".")[2] in verbs
    )
