"""A run of streams with made-up figures: two strategies and a peer at two sizes, on merge-on-read tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from serde_lab.runs.model import ArmEntry, Check, RunHeader
from serde_lab.runs.writer import RunWriter
from tests.report.made_up_run import ENVIRONMENT, FAIRNESS, SCENARIO

SIZES = {1000: 40, 100_000: 12}
"""Batches by the rows of one."""
_ARMS: dict[str, tuple[str, float, float]] = {
    # kind, seconds of a batch, microseconds of a row
    "internal_row": ("strategy", 0.50, 2.0),
    "pickle": ("strategy", 0.51, 9.0),
    "hudi_spark_tuned": ("peer", 1.60, 6.0),
}
_COMPACT_AFTER = 5
EMPTY_JOB_S = 0.3
_OWN = {"prepare": 0.06, "begin": 0.005, "plan": 0.01, "commit": 0.02}

CONTENT: dict[str, Any] = {
    **SCENARIO,
    "name": "stream",
    "title": "A made-up stream",
    "question": "From which size of a micro-batch on does the strategy matter?",
    "reference": "internal_row",
    "table": {**SCENARIO["table"], "type": "MERGE_ON_READ"},
    "commit": [{"operation": "upsert", "rows": 1000}],
    "stream": {"batches": 40, "services": True, "compact_after": _COMPACT_AFTER},
    "sweep": {"key": "commit.1.rows", "values": list(SIZES)},
    "arm": [{"name": name, "strategy": name} for name in _ARMS],
}


def make_stream_run(
    results: Path,
    services: bool = True,
    sizes: Mapping[int, int] = SIZES,
    times: Callable[[int], float] = lambda batch: 1.0,
    reads: Callable[[int], float] = lambda batch: 0.0,
) -> Path:
    """Write the run below `results`; its directory.

    `times`: by how much a batch takes longer. `reads`: the seconds of reads beside it, of 0.7 s each.
    """
    content = {**CONTENT, "stream": {**CONTENT["stream"], "services": services}}
    header = RunHeader(
        run="20250101T120000Z",
        scenario="stream",
        arms=tuple(
            ArmEntry(
                arm=f"{name}@{rows:g}",
                kind=kind,  # type: ignore[arg-type]
                strategy=name if kind == "strategy" else None,
                options={},
                fairness=FAIRNESS.get(name),
                swept={"arm": name, "value": rows},
            )
            for name, (kind, _, _) in _ARMS.items()
            for rows in sizes
        ),
        scenario_content=content,
        environment=dict(ENVIRONMENT),
        machine_class="made-up-2-cores",
        code_version={"package": "0.1.0", "git_commit": "0" * 40, "git_dirty": False},
        data_checksums={},
        seed=7,
        settings={"local_mode": True},
        started_at="2025-01-01T12:00:00Z",
    )
    writer, chance = RunWriter.create(results, header), random.Random(3)
    for number, (rows, batches) in enumerate(sizes.items()):
        for order, (name, (kind, fixed_s, row_us)) in enumerate(_ARMS.items()):
            cell = f"r{number:02d}-{name}@{rows:g}"
            writer.cell_begin(
                cell,
                arm=f"{name}@{rows:g}",
                round=number,
                warmup=False,
                order=order,
                started_at="2025-01-01T12:00:00Z",
            )
            total_s = 0.0
            for batch in range(1, batches + 1):
                seconds = (fixed_s + rows * row_us * 1e-6) * (0.97 + 0.06 * chance.random())
                seconds *= times(batch)
                served = services and batch % _COMPACT_AFTER == 0
                seconds += 0.8 if served else 0.0
                total_s += seconds
                for metric, value in _of_batch(kind, seconds, served).items():
                    writer.sample(cell, metric, value, commit=batch)
                writer.sample(cell, "rows", rows, commit=batch)
                if kind == "strategy" and reads(batch):
                    writer.sample(cell, "driver.reads_s", reads(batch), commit=batch)
                    writer.sample(cell, "driver.read_by_hudi_rs_s", 0.7, commit=batch)
            serde_s = 0.3 * batches * rows * row_us * 1e-6
            phases = {"map.jvm": 2 * total_s}
            if kind == "strategy":
                phases = {"map.encode": serde_s, "idle.driver": 2 * total_s - serde_s}
            for phase, value in phases.items():
                writer.sample(cell, "phase_wall_s", value, phase=phase)
                writer.sample(cell, "phase_cpu_s", value, phase=phase)
            writer.sample(cell, "seconds", total_s)
            writer.sample(cell, "slots", 2)
            writer.check(
                Check(
                    name="batches_are_stored_once",
                    passed=True,
                    detail=f"{batches} batches, each in one commit",
                    arm=f"{name}@{rows:g}",
                    cell=cell,
                    round=number,
                )
            )
            writer.cell_end(cell, "ok")
    writer.finish("complete")
    return writer.path


def _of_batch(kind: str, seconds: float, served: bool) -> dict[str, float]:
    """The samples of one batch, whose sink takes 50 ms less than the whole."""
    found = {
        "seconds": seconds,
        "driver.add_batch_s": seconds - 0.05,
        "driver.before_requested_s": 0.12,
        "driver.after_completed_s": 0.82 if served else 0.02,
    }
    if served:
        found |= {"driver.services_s": 0.78, "driver.compactions": 1}
    if kind == "strategy":
        serve = 0.8 if served else 0.0
        tasks = seconds - 0.05 - sum(_OWN.values()) - serve - 0.01
        own = {**_OWN, "execute": tasks, "serve": serve, "empty_job": EMPTY_JOB_S}
        found |= {f"driver.{name}_s": value for name, value in own.items()}
    return found
