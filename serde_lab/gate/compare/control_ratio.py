"""Expresses times as ratios to a control arm of the same run, so that they compare across machine classes."""

from __future__ import annotations

from serde_lab.analysis.cell_values import PHASE_CPU
from serde_lab.errors import UsageError
from serde_lab.gate.compare.sides import ArmSide, Quantity, Side

WIDE_CHANGE = 0.5
"""Between machine classes, a ratio to the control arm may change by a factor of 1.5."""

_CPU = frozenset({"serde_cpu_s", PHASE_CPU})


def control_of(before: Side, after: Side, wanted: str) -> str:
    """The control arm of both sides: the requested one, else the first timed one by name; "" if none.

    Raises UsageError if the requested arm is not in both.
    """
    common = sorted(before.arms.keys() & after.arms.keys())
    if wanted:
        if wanted not in common:
            raise UsageError(
                f"the control arm {wanted!r} is not in both {before.label} and {after.label}"
            )
        return wanted
    controls = [name for name in common if before.arms[name].definition.get("kind") == "control"]
    timed = [name for name in controls if Quantity("seconds") in before.arms[name].values]
    return timed[0] if timed else ""


def ratios_to_control(side: Side, arm: str, control: str, quantity: Quantity) -> dict[int, float]:
    """The quantity over the control arm's time, by round; rounds that lack either are left out.

    If the control is a strategy, CPU time is divided by the control's CPU time, for which its phases account
    in full; wall time varies on a busy machine. Everything else is divided by the control's wall time.
    """
    divisors = side.arms[control].values.get(Quantity("seconds"), {})
    if is_cpu_ratio(side, control, quantity):
        divisors = _cpu_s(side.arms[control]) or divisors
    values = side.arms[arm].values.get(quantity, {})
    return {n: v / divisors[n] for n, v in values.items() if divisors.get(n, 0) > 0}


def is_cpu_ratio(side: Side, control: str, quantity: Quantity) -> bool:
    """Whether the ratio is one of CPU times, which do not grow while others use the processor."""
    return quantity.metric in _CPU and side.arms[control].definition.get("kind") == "strategy"


def _cpu_s(arm: ArmSide) -> dict[int, float]:
    total: dict[int, float] = {}
    for quantity, values in arm.values.items():
        if quantity.metric == PHASE_CPU and not quantity.commit:
            for number, value in values.items():
                total[number] = total.get(number, 0.0) + value
    return total
