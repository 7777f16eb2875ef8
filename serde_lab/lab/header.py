"""The header of a run: everything about it that is known before it measures.

Owns what is recorded of scenario, arms, machine and code. Must not know cells or samples.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from serde_lab.lab.inputs import PreparedInputs
from serde_lab.lab.java import find_java
from serde_lab.lab.plan import fairness_of, serde_options
from serde_lab.measure.code_version import code_version
from serde_lab.measure.environment import capture_environment, machine_class
from serde_lab.runs.directory import new_run_id
from serde_lab.runs.model import ArmEntry, RunHeader
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.serde.prediction import predict
from serde_lab.serde.registry import strategy


def run_header(
    scenario: Scenario,
    arms: Sequence[Arm],
    inputs: PreparedInputs,
    *,
    results: Path,
    conf: Mapping[str, str],
    local_mode: bool,
    overrides: Sequence[str],
) -> RunHeader:
    """The header of a new run in `results`; `conf` is the Spark session's, `overrides` are KEY=VALUE."""
    java = find_java()
    seen = capture_environment(results, {"version": java.version, "origin": java.origin})
    return RunHeader(
        run=new_run_id(results / scenario.name),
        scenario=scenario.name,
        arms=tuple(arm_entry(arm, inputs.record_schema.data) for arm in arms),
        scenario_content=scenario.to_json(),
        environment=seen,
        machine_class=machine_class(seen),
        code_version=code_version(),
        data_checksums=dict(inputs.checksums),
        seed=scenario.measure.seed,
        spark_conf=dict(conf),
        settings={
            "rows": {str(n): c.rows for n, c in enumerate(inputs.commits, start=1)},
            "operations": {str(n): c.operation for n, c in enumerate(inputs.commits, start=1)},
            "local_mode": local_mode,
            "overrides": dict(text.split("=", 1) for text in overrides),
            "python": platform.python_version(),
        },
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def arm_entry(arm: Arm, data: pa.Schema) -> ArmEntry:
    """The arm as the run keeps it: options with all defaults, its fairness card, what was expected."""
    options: dict[str, Any] = dict(arm.options.given)
    prediction = None
    if arm.strategy is not None:
        known, bound = strategy(arm.strategy), serde_options(arm)
        expected = predict(known, bound.execution or known.executions[0], data)
        prediction = None if expected is None else asdict(expected)
        options = {
            "execution": bound.execution,
            "rows_per_frame": bound.rows_per_frame,
            "max_frame_bytes": bound.max_frame_bytes,
            "integrity": bound.integrity,
            **bound.own,
        }
    return ArmEntry(
        arm=arm.name,
        kind=arm.kind,
        strategy=arm.strategy,
        options=options,
        fairness=fairness_of(arm),
        prediction=prediction,
    )
