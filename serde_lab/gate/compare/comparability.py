"""What may be compared with what, and what stands in the way, in words.

A baseline becomes incomparable when what is *asked* changes: scenario content, data, measuring
code, results format. The code of strategies, pipeline and table is what is *judged* and never
stands in the way. Absolute times and memory need the same machine class on top, and a machine that
is nobody else's. Knows sides, not statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from serde_lab.errors import UsageError
from serde_lab.gate.compare.sides import ArmSide, Side
from serde_lab.scenario.identity import arm_with_defaults, with_defaults

HostMismatch = Literal["refuse", "ratios", "ignore", "shared"]
"""What becomes of times where machine classes differ. `shared` does not ask for the class: whoever else
runs on the machine has a part in every wall time, so that only CPU time is held against CPU time."""
HOST_MISMATCH: tuple[HostMismatch, ...] = ("refuse", "ratios", "ignore")
"""Those that `--host-mismatch` names; `--shared-machine` is an option of its own."""


@dataclass(frozen=True, slots=True)
class Obstacles:
    """Why something is not comparable: `everything`, or only `absolute` times and memory.

    `ratios` asks for times as ratios to a control arm of the same run, `cpu_only` for none but of CPU
    time to CPU time. `notes` are differences that are named and stand in nobody's way.
    """

    everything: str = ""
    absolute: str = ""
    ratios: bool = False
    cpu_only: bool = False
    notes: tuple[str, ...] = ()


def host_mismatch_named(name: str) -> HostMismatch:
    """Checks the value of --host-mismatch; raises UsageError naming the three that exist."""
    for known in HOST_MISMATCH:
        if name == known:
            return known
    raise UsageError(f"host mismatch {name!r} is not one of {', '.join(HOST_MISMATCH)}")


def obstacles(
    before: Side, after: Side, host_mismatch: HostMismatch, *, across_options: bool = False
) -> Obstacles:
    """What stands between two sides; nothing between two arms of one run.

    `across_options`: the sides are meant to be asked differently (option sets of `ab`), which is
    then told and stands in nobody's way.
    """
    if before is after:
        return Obstacles()
    reason = _asked_differently(before, after, across_options)
    if reason:
        return Obstacles(everything=reason)
    options = tuple(
        f"asked differently: {key} is {_short(old)} before and {_short(new)} after"
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
    if before.sitting and before.sitting == after.sitting:
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


# Facts of an environment that say nothing about comparability, and differ every time.
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
    if not before.measuring_code or before.measuring_code != after.measuring_code:
        return (
            f"the measuring code changed ({before.measuring_code[:12] or 'unknown'} is not "
            f"{after.measuring_code[:12] or 'unknown'})"
        )
    return ""


def arms_differ(before: ArmSide, after: ArmSide) -> str:
    """What the scenario asks differently of the two arms; "" when it asks the same."""
    for key, old, new in differing(
        arm_with_defaults(before.definition), arm_with_defaults(after.definition)
    ):
        return f"{key} is {_short(old)} before and {_short(new)} after"
    return ""


def differing(
    before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Dotted keys whose values differ, with both values; None where a side lacks the key."""
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
