"""Decides what may be compared, and explains in words why something may not.

A baseline becomes incomparable if what is *asked* changes: scenario content, data or results format; one of
its metrics does if the code of an instrument that measures it changes. The code of strategies, pipeline and
table is what is *judged* and may change. Absolute times and memory also need the same machine class, and a
machine that nobody else uses; otherwise times may be compared as ratios to those of one arm of the same
run, the yardstick.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from serde_lab.analysis.cell_values import PHASE_CPU
from serde_lab.errors import UsageError
from serde_lab.gate.compare.sides import ArmSide, Quantity, Side
from serde_lab.measure.code_version import differing_instruments
from serde_lab.scenario.identity import arm_with_defaults, with_defaults

HostMismatch = Literal["refuse", "ratios", "ignore", "shared"]
"""What happens to times if machine classes differ; `shared` has an option of its own, `--shared-machine`.

`shared` ignores the class: other users of the machine influence every wall time, so that only CPU times are
compared, as ratios to the yardstick's CPU time.
"""


@dataclass(frozen=True, slots=True)
class Obstacles:
    """Why something is not comparable: `everything`, or only `absolute` times and memory.

    `ratios` asks for times as ratios to the yardstick's; `cpu_only` allows only ratios of CPU time to CPU
    time. `notes` are differences to report that prevent no comparison.
    """

    everything: str = ""
    absolute: str = ""
    ratios: bool = False
    cpu_only: bool = False
    notes: tuple[str, ...] = ()


def obstacles(
    before: Side, after: Side, host_mismatch: HostMismatch, *, across_options: bool = False
) -> Obstacles:
    """The obstacles between two sides; none between two arms of one run.

    With `across_options` the sides are asked differently on purpose (option sets of `ab`): the difference is
    reported and is no obstacle.
    """
    if before is after:
        return Obstacles()
    reason = _asked_differently(before, after, across_options)
    if reason:
        return Obstacles(everything=reason)
    options = tuple(
        f"other settings: {key} is {_short(old)} before and {_short(new)} after"
        for key, old, new in differing(with_defaults(before.asked), with_defaults(after.asked))
    )
    notes = (
        options
        + tuple(
            f"environment: {key} {old!r} -> {new!r}"
            for key, old, new in differing(before.environment, after.environment)
            if key.rpartition(".")[2] not in _VOLATILE and old is not None and new is not None
        )[:12]
    )
    if before.ab and before.ab == after.ab:
        return Obstacles(notes=notes)
    if host_mismatch == "shared":
        shared = "the machine is shared with others"
        return Obstacles(absolute=shared, ratios=True, cpu_only=True, notes=notes)
    if before.machine_class and before.machine_class == after.machine_class:
        return Obstacles(notes=notes)
    machines = (
        f"machine class {before.machine_class or 'unknown'} is not "
        f"{after.machine_class or 'unknown'}"
    )
    if host_mismatch == "ignore":
        return Obstacles(notes=(f"{machines}; ignored as asked", *notes))
    return Obstacles(absolute=machines, ratios=host_mismatch == "ratios", notes=notes)


# Environment facts that always differ and do not affect comparability.
_VOLATILE = frozenset(
    {"hostname", "load", "load_average", "time", "started_at", "pid", "uptime_s", "free_bytes"}
)


def _asked_differently(before: Side, after: Side, across_options: bool) -> str:
    if before.results_format != after.results_format:
        return f"results format {before.results_format} is not {after.results_format}"
    for what, old, new in (
        *(
            []
            if across_options
            else [("the scenario's", with_defaults(before.asked), with_defaults(after.asked))]
        ),
        ("the data's checksum of", before.data_checksums, after.data_checksums),
    ):
        for key, first, second in differing(old, new):
            return f"{what} {key} changed from {_short(first)} to {_short(second)}"
    if before.instruments and after.instruments:
        return ""
    if not before.measuring_code or before.measuring_code != after.measuring_code:
        return (
            f"the measuring code changed ({before.measuring_code[:12] or 'unknown'} is not "
            f"{after.measuring_code[:12] or 'unknown'})"
        )
    return ""


def instruments_differ(before: Side, after: Side, metric: str) -> str:
    """The instruments of a metric that changed between two sides, in words; "" if none did.

    Sides that record no instruments are compared as wholes, by `obstacles`.
    """
    if not before.instruments or not after.instruments:
        return ""
    changed = differing_instruments(before.instruments, after.instruments, metric)
    return f"the measuring code changed: {', '.join(changed)}" if changed else ""


def arms_differ(before: ArmSide, after: ArmSide) -> str:
    """The differences in what the scenario asks of the two arms; "" if there are none."""
    for key, old, new in differing(
        arm_with_defaults(before.definition), arm_with_defaults(after.definition)
    ):
        return f"{key} is {_short(old)} before and {_short(new)} after"
    return ""


def differing(
    before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Dotted keys whose values differ, with both values; None if a side lacks the key."""
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differing(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}", old, new


def _short(value: object) -> str:
    if value is None:
        return "the default"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


WIDE_CHANGE = 0.5
"""Between machine classes, a ratio to the yardstick may change by a factor of 1.5."""

_CPU = frozenset({"serde_cpu_s", PHASE_CPU})


def yardstick_of(before: Side, after: Side, wanted: str) -> str:
    """The yardstick of both sides: the requested arm, else the first timed control by name; "" if none.

    Raises UsageError if the requested arm is not in both.
    """
    common = sorted(before.arms.keys() & after.arms.keys())
    if wanted:
        if wanted not in common:
            raise UsageError(
                f"the yardstick {wanted!r}, which [gate] control names, is not in both {before.label} and"
                f" {after.label}"
            )
        return wanted
    controls = [name for name in common if before.arms[name].definition.get("kind") == "control"]
    timed = [name for name in controls if Quantity("seconds") in before.arms[name].values]
    return timed[0] if timed else ""


def ratios_to_yardstick(
    side: Side, arm: str, yardstick: str, quantity: Quantity
) -> dict[int, float]:
    """The quantity over the yardstick's time, by round; rounds that lack either are left out.

    If the yardstick is a strategy, CPU time is divided by its CPU time, for which its phases account
    in full; wall time varies on a busy machine. Everything else is divided by the yardstick's wall time.
    """
    divisors = side.arms[yardstick].values.get(Quantity("seconds"), {})
    if is_cpu_ratio(side, yardstick, quantity):
        divisors = _cpu_s(side.arms[yardstick]) or divisors
    values = side.arms[arm].values.get(quantity, {})
    return {n: v / divisors[n] for n, v in values.items() if divisors.get(n, 0) > 0}


def is_cpu_ratio(side: Side, yardstick: str, quantity: Quantity) -> bool:
    """Whether the ratio is one of CPU times, which do not grow while others use the processor."""
    return quantity.metric in _CPU and side.arms[yardstick].definition.get("kind") == "strategy"


def _cpu_s(arm: ArmSide) -> dict[int, float]:
    total: dict[int, float] = {}
    for quantity, values in arm.values.items():
        if quantity.metric == PHASE_CPU and not quantity.commit:
            for number, value in values.items():
                total[number] = total.get(number, 0.0) + value
    return total
