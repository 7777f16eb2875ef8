"""Made-up runs for the tests of this folder."""

from collections.abc import Sequence
from pathlib import Path

from serde_lab.runs.model import ArmEntry, Check, RunHeader
from serde_lab.runs.writer import RunWriter


def header(run: str = "20260101T000000Z", scenario: str = "smoke", **fields: object) -> RunHeader:
    values: dict[str, object] = {
        "run": run,
        "scenario": scenario,
        "scenario_content": {"reference": "pickle", "commit": [{"operation": "upsert"}]},
        "arms": (
            ArmEntry(arm="pickle", strategy="pickle"),
            ArmEntry(arm="arrow", strategy="arrow"),
        ),
    }
    return RunHeader.model_validate(values | fields)


def begin(writer: RunWriter, cell: str, *, warmup: bool = False, order: int = 0) -> None:
    """Begin a cell that is named like r03-avro."""
    round_, _, arm = cell.partition("-")
    writer.cell_begin(
        cell,
        arm=arm,
        round=int(round_[1:]),
        warmup=warmup,
        order=order,
        started_at="2026-01-01T00:00:00Z",
    )


def whole_cell(
    writer: RunWriter, cell: str, seconds: Sequence[float], *, warmup: bool = False
) -> None:
    """A cell with a commit for each of `seconds`, 100 rows each, all time in map.encode."""
    begin(writer, cell, warmup=warmup)
    for n, value in enumerate(seconds, 1):
        writer.sample(cell, "seconds", value, commit=n)
        writer.sample(cell, "rows", 100, commit=n)
        writer.sample(cell, "phase_wall_s", value * 2, commit=n, phase="map.encode")
        writer.sample(cell, "phase_cpu_s", value, commit=n, phase="map.encode")
    writer.sample(cell, "slots", 2)
    end(writer, cell)


def end(writer: RunWriter, cell: str) -> None:
    """End a cell well, checked."""
    round_, _, arm = cell.partition("-")
    writer.check(Check("oracle", True, "all rows agree", arm, cell, int(round_[1:])))
    writer.cell_end(cell, "ok")


def small_run(results: Path, *, killed: bool = False) -> Path:
    """Two rounds of pickle and arrow; `killed` before its end, it has no digests."""
    with RunWriter.create(results, header()) as writer:
        for round_ in (1, 2):
            whole_cell(writer, f"r{round_:02d}-pickle", [2.0])
            whole_cell(writer, f"r{round_:02d}-arrow", [1.0])
        if not killed:
            writer.finish("complete")
        return writer.path
