"""Made-up sides, runs and noise for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serde_lab.gate.compare.sides import ArmSide, Quantity, Side
from serde_lab.runs.model import ArmEntry, Check, RunHeader
from serde_lab.runs.writer import RunWriter

STEADY = [1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015]
MACHINE = "linux-x86_64-8c"


def quantity(name: str) -> Quantity:
    """`seconds`, `phase_cpu_s map.encode`, `frames #2`"""
    parts = name.split()
    commit = next((int(p[1:]) for p in parts if p.startswith("#")), 0)
    phase = next((p for p in parts[1:] if not p.startswith("#")), "")
    return Quantity(parts[0], phase, commit)


def arm(
    name: str,
    values: Mapping[str, Sequence[float]],
    *,
    definition: Mapping[str, Any] | None = None,
    checks_passed: int = 1,
    failures: Sequence[str] = (),
    errors: Sequence[str] = (),
    blocks: bool = False,
    place: int = 0,
) -> ArmSide:
    """An arm whose rounds count from 1; `blocks` has it run all its rounds in one go."""
    rounds = max((len(v) for v in values.values()), default=0)
    order = [(place * 1000 + n if blocks else n * 1000 + place, n) for n in range(1, rounds + 1)]
    return ArmSide(
        arm=name,
        definition=definition or {"kind": "strategy", "strategy": name},
        values={quantity(q): dict(enumerate(v, 1)) for q, v in values.items()},
        checks_passed=checks_passed,
        failures=tuple(failures),
        errors=tuple(errors),
        order=tuple(order),
    )


def side(label: str, *arms: ArmSide, **fields: Any) -> Side:
    """A side of the scenario `smoke` on one machine class; `fields` replace what is the default."""
    defaults: dict[str, Any] = {
        "scenario": "smoke",
        "asked": {"table": {"buckets": 8}},
        "data_checksums": {"commit 1": "aa"},
        "measuring_code": "m1",
        "results_format": 1,
        "machine_class": MACHINE,
        "arms": {one.arm: one for one in arms},
    }
    return Side(label=label, **(defaults | fields))


def one_metric(label: str, values: Sequence[float], name: str = "seconds", **fields: Any) -> Side:
    """A side with the arm `avro` and one quantity."""
    return side(label, arm("avro", {name: values}), **fields)


def calm(rounds: int, seconds: float = 0.1) -> dict[int, dict[str, float]]:
    """A calibration that hardly moves."""
    return {n: {"numpy": seconds * (1 + 0.001 * (n % 3))} for n in range(1, rounds + 1)}


def write_run(
    results: Path,
    run: str,
    seconds: Mapping[str, Sequence[float]],
    *,
    frame_bytes: Mapping[str, int] | None = None,
    scenario: str = "smoke",
    failing: Sequence[str] = (),
    failed_rounds: Mapping[str, int] | None = None,
    state: str = "complete",
    gate: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
    **fields: Any,
) -> Path:
    """A run directory: for each arm its seconds by round, all of it CPU time of `map.encode`."""
    kinds = kinds or {}
    header = RunHeader.model_validate(
        {
            "run": run,
            "scenario": scenario,
            "scenario_content": {"table": {"buckets": 8}, "gate": dict(gate or {})},
            "machine_class": MACHINE,
            "code_version": {"measuring": "m1", "git": run},
            "data_checksums": {"commit 1": "aa"},
            "arms": [
                ArmEntry(arm=name, strategy=name, kind=kinds.get(name, "strategy"))
                for name in seconds
            ],
            "started_at": f"2026-01-01T00:00:00+00:00 {run}",
        }
        | fields
    )
    with RunWriter.create(results, header) as writer:
        rounds = max(map(len, seconds.values()))
        for number in range(1, rounds + 1):
            writer.calibration(number, "numpy", 0.1 + 0.0001 * (number % 3))
            for order, (name, values) in enumerate(seconds.items()):
                if number > len(values):
                    continue
                cell = f"r{number:02d}-{name}"
                writer.cell_begin(
                    cell, arm=name, round=number, warmup=False, order=order, started_at="t"
                )
                if (failed_rounds or {}).get(name) == number:
                    writer.cell_end(cell, "failed", "the arm raised on purpose")
                    continue
                value = values[number - 1]
                writer.sample(cell, "seconds", value, commit=1)
                writer.sample(cell, "phase_cpu_s", value / 2, commit=1, phase="map.encode")
                writer.sample(cell, "phase_wall_s", value / 2, commit=1, phase="map.encode")
                writer.sample(cell, "rows", 1000, commit=1)
                writer.sample(cell, "frame_bytes", (frame_bytes or {}).get(name, 5000), commit=1)
                writer.check(
                    Check(
                        "oracle", name not in failing, "row 7 differs in l_tax", name, cell, number
                    )
                )
                writer.cell_end(cell, "ok")
        writer.finish(state)  # type: ignore[arg-type]
        return writer.path


def log_normal(seed: int, rounds: int, sigma: float, median: float = 1.0) -> list[float]:
    """Seconds of a machine with this relative noise."""
    noise = np.random.default_rng(seed).normal(0, sigma, rounds)
    return [float(value) for value in median * np.exp(noise)]
