"""Estimates how long a run takes, before it starts.

The estimate comes from an earlier run of the same scenario if there is one, else from the number of rows
and rough costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from serde_lab.errors import LabError
from serde_lab.lab.cells.codec_cases import codec_cases
from serde_lab.runs.directory import load_run
from serde_lab.runs.listing import resolve_run
from serde_lab.scenario.model import Arm, Scenario
from tpch import TABLES

# seconds for Spark's start, data and checks; microseconds per row on two cores, by kind of arm
_FIXED_S, _CELL_S = 25.0, 2.5
_MICROSECONDS = {
    "avro": 18.0,
    "pickle": 7.0,
    "hudi_avro": 20.0,
    "hudi_spark": 13.0,
    "hudi_spark_tuned": 11.0,
}
_AVRO_BY_BATCH, _OTHER_MICROSECONDS = 5.5, 3.5
_CHECK_MICROSECONDS, _ORACLE_MICROSECONDS = 1.0, 2.5
_CASE_S = 0.6
_RECORD_COLUMNS = 17


def estimate_seconds(scenario: Scenario, arms: Sequence[Arm], results: Path) -> tuple[float, str]:
    """Seconds for the whole run, and a description of what the estimate is based on."""
    cells = scenario.measure.warmup + scenario.measure.rounds
    if scenario.codec_only:
        cases = len(codec_cases(scenario, _RECORD_COLUMNS))
        return cells * len(arms) * cases * _CASE_S, "by the number of cases; never measured here"
    before = _measured(scenario.name, results)
    if before and all(arm.name in before for arm in arms):
        per_round = sum(before[arm.name] + _CELL_S for arm in arms)
        return _FIXED_S + cells * per_round, "by an earlier run of this scenario"
    rows = sum(batch.rows_of(_source_rows(scenario)) for batch in scenario.commits)
    per_round = sum(
        _CELL_S + rows * 1e-6 * (_CHECK_MICROSECONDS + _microseconds(arm)) for arm in arms
    )
    fixed_s = _FIXED_S + rows * 1e-6 * _ORACLE_MICROSECONDS
    return fixed_s + cells * per_round, "by rows and rough costs; never measured here"


def _microseconds(arm: Arm) -> float:
    if arm.subject == "avro" and arm.options.execution == "batch":
        return _AVRO_BY_BATCH
    return _MICROSECONDS.get(arm.subject, _OTHER_MICROSECONDS)


def _source_rows(scenario: Scenario) -> int:
    if scenario.data.source == "tpch":
        return int(TABLES[scenario.data.table].rows_at(scenario.data.scale_factor))
    return 1_000_000


def _measured(name: str, results: Path) -> dict[str, float]:
    try:
        run = load_run(resolve_run(name, results))
    except LabError:
        return {}
    seconds: dict[str, list[float]] = {}
    for cell in run.cells:
        for sample in cell.samples:
            if sample.metric == "seconds" and sample.commit is None:
                seconds.setdefault(cell.arm, []).append(sample.value)
    return {arm: median(values) for arm, values in seconds.items()}
