"""Rows that no cell has seen: what they are, and what their CPU time says of the cells."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from serde_lab.lab.checks.referee import (
    WORK_IS_DONE_IN_THE_CELLS,
    Spent,
    UnseenRows,
    _compared,
    spent_in_cells,
)
from serde_lab.lab.checks.stand_alone import DecodedArm
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.measure.metrics import Sample
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import ENVELOPE, RecordSchema
from serde_lab.runs.model import MeasuredCell
from serde_lab.serde.interface import SerdeOptions

SCHEMA = RecordSchema(
    pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64())]), ("k",), ("n",)
)
ROWS = pa.table({"k": [f"k{i}" for i in range(500)], "n": list(range(500))}, schema=SCHEMA.data)
ARMS = {"a": ("arrow", SerdeOptions())}
VERBS = ("from_arrow and encode", "decode")


def _cell(number: int, cpu_s: float, commit: int | None = 1) -> MeasuredCell:
    samples = [
        _cpu("map.from_arrow", cpu_s, commit),
        _cpu("map.encode", cpu_s, commit),
        _cpu("reduce.decode", cpu_s, commit),
        _cpu("reduce.merge", 7.0, commit),
    ]
    if commit is not None:
        samples.append(_cpu("map.encode", 50.0, 2))
    return MeasuredCell(f"c{number}", "a", number, False, 0, "", "ok", None, tuple(samples))


def _cpu(phase: str, seconds: float, commit: int | None) -> Sample:
    return Sample("phase_cpu_s", seconds, commit, phase)


RUN: Any = SimpleNamespace(cells=[_cell(1, 9.0)])


def _unseen(folder: Path, operation: str = "upsert") -> UnseenRows:
    pq.write_table(ROWS, folder / "part-00000.parquet")
    commit = CommitInput("c", operation, folder, (folder / "part-00000.parquet",), 500, "")
    return UnseenRows([commit], SCHEMA, KeyGenerator(SCHEMA))


def test_each_pass_has_the_values_of_the_input_and_none_of_its_rows(tmp_path: Path) -> None:
    unseen = _unseen(tmp_path)
    sent = unseen.sent(ARMS)
    assert len(sent) == 3
    passes = [sample.expected for sample in unseen._samples["a"]]
    for batch in passes:
        data = [pc.cast(column, pa.string()) for column in batch.columns[len(ENVELOPE) :]]
        assert sorted(data[0].to_pylist()) == sorted(ROWS.column("k").to_pylist())
        alike = pc.sum(pc.equal(pc.utf8_slice_codeunits(data[0], 1), data[1])).as_py()
        assert alike < 20
    assert not passes[0].equals(passes[1])


def test_of_a_delete_there_are_none(tmp_path: Path) -> None:
    assert _unseen(tmp_path, "delete").sent(ARMS) == {}


@pytest.mark.parametrize(
    ("in_cells_s", "a_row_s", "passed"),
    [
        (1.0, 3.9e-6, True),
        (1.0, 4.1e-6, False),
        # too little to be told from noise
        (0.01, 0.5e-6, True),
        (0.01, 0.52e-6, False),
        (0.0, 0.0, True),
    ],
)
@pytest.mark.parametrize("verbs", VERBS)
def test_a_cell_must_take_a_quarter_of_what_unseen_rows_take(
    verbs: str, in_cells_s: float, a_row_s: float, passed: bool
) -> None:
    spent = Spent(1_000_000, {**dict.fromkeys(VERBS, 9.0), verbs: in_cells_s})
    found = _compared(spent, {**dict.fromkeys(VERBS, 0.0), verbs: a_row_s})
    assert (found.name, found.passed) == (WORK_IS_DONE_IN_THE_CELLS, passed)
    assert f"{verbs} took {in_cells_s:.2f} s" in found.detail


def test_what_the_cells_took_is_a_median_over_rounds_of_the_commits_with_rows() -> None:
    commits = tuple(
        CommitInput(name, name, Path(), (), rows, "")
        for name, rows in [("upsert", 9), ("delete", 5)]
    )
    cells = [_cell(number, cpu_s) for number, cpu_s in enumerate([1.0, 9.0, 2.0])]
    run = SimpleNamespace(cells=cells)
    spent = Spent(9, {"from_arrow and encode": 4.0, "decode": 2.0})
    assert spent_in_cells(run, "a", commits) == spent  # type: ignore[arg-type]
    assert spent_in_cells(run, "a", commits[1:]) is None  # type: ignore[arg-type]
    assert spent_in_cells(run, "b", commits) is None  # type: ignore[arg-type]
    # those of a stream have no commit
    whole = [_cell(1, 3.0, None)]
    assert spent_in_cells(SimpleNamespace(cells=whole), "a", commits[:1]) == Spent(  # type: ignore[arg-type]
        9, {"from_arrow and encode": 6.0, "decode": 3.0}
    )


def test_rows_that_do_not_come_back_speak_against_an_arm(tmp_path: Path) -> None:
    unseen = _unseen(tmp_path)
    right = {name: DecodedArm(_rows(unseen, n)) for n, name in enumerate(unseen.sent(ARMS))}
    assert [one.passed for one in unseen.judge("a", right, RUN)] == [True]
    last = list(right)[-1]
    for wrong, said in [
        (DecodedArm(None, "no such ticket"), False),
        (DecodedArm(_rows(unseen, 0)), False),
        (DecodedArm(None, "no module", bound=False), None),
    ]:
        (found,) = unseen.judge("a", {**right, last: wrong}, RUN)
        assert found.passed is said


def _rows(unseen: UnseenRows, number: int) -> pa.RecordBatch:
    return unseen._samples["a"][number].expected


def test_a_strategy_that_raises_on_them_is_wrong(tmp_path: Path) -> None:
    unseen = _unseen(tmp_path)
    assert unseen.sent({"a": ("arrow", SerdeOptions(own={"compression": "none of these"}))}) == {}
    (found,) = unseen.judge("a", {}, RUN)
    assert found.passed is False
