"""A few batches of what `make differential` runs in hundreds, and its bookkeeping."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.differential.history import Case, History
from tests.differential.kind import Kind
from tests.differential.made import batch
from tests.differential.readers import read
from tests.differential.report import write_report
from tests.differential.state import State
from tests.differential.trial import Difference, Trial, compared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = (1, 2, 10, 12, 20, 13)
SIZE = 8


@pytest.mark.spark
@pytest.mark.hudi
@pytest.mark.parametrize("number", BATCHES)
def test_no_history_differs(number: int, hudi_session: SparkSession, tmp_path: Path) -> None:
    drawn = batch(number, SIZE)
    on_spark = list(drawn.histories)[-1:] if number == BATCHES[-1] else ()
    trial = Trial(hudi_session, tmp_path, drawn.kind, drawn.histories, on_spark, number)
    assert [str(one) for one in trial.differences()] == [], drawn.kind


def test_a_batch_is_the_same_each_time() -> None:
    assert batch(7, 5).digest == batch(7, 5).digest != batch(8, 5).digest


def test_ties_within_a_commit_are_identical_rows() -> None:
    for number in range(6):
        drawn = batch(number)
        names = drawn.kind.told_by
        for history in drawn.histories.values():
            for rows in history.lines():
                told = {row: tuple(json.loads(row).get(name) for name in names) for row in rows}
                assert len({str(key) for key in told.values()}) == len(told)


def test_kinds_that_cannot_be_compared_are_not_drawn() -> None:
    kind = Kind("event time", "COPY_ON_WRITE", "AVRO", ordering="day")
    assert kind.exception == "date or decimal as ordering field, copy on write, AVRO record type"
    assert all(not batch(number, 1).kind.exception for number in range(24))


def test_a_lost_row_is_told(tmp_path: Path) -> None:
    kind = Kind("event time", "COPY_ON_WRITE", "AVRO", ordering="long", program=("upsert",) * 2)
    history = History((({"k": "a", "o": 1},), ({"k": "b", "o": 1},)))
    trial = Trial(None, tmp_path, kind, {"A": history, "B": history})
    trial.write("arrow")
    answer = read("serde_lab", trial.path("arrow"), trial.schema)
    assert {letter: len(rows) for letter, rows in answer.items()} == {"A": 2, "B": 2}
    less = {"A": answer["A"], "B": answer["B"] - Counter(list(answer["B"])[:1])}
    (found,) = compared(answer, less, "AB", "arrow", "serde_lab")
    assert found.letter == "B"
    assert len(found.missing) == 1
    assert found.unexpected == ()


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first, second, third = (batch(number, 2) for number in range(3))
    state = State.load(tmp_path / "state.jsonl")
    state.add(first, 1, [])
    state.add(second, 0, [Difference("B", "arrow", "hudi-rs", ("a row",))])
    with (tmp_path / "state.jsonl").open("a") as file:
        file.write('{"number": 2, "torn')
    again = State.load(tmp_path / "state.jsonl")
    assert [again.has(one) for one in (first, second, third)] == [True, False, False]
    assert again.finished[second.digest].differences[0].missing == ("a row",)
    write_report(tmp_path / "report.md", again.of([first, second, third]))
    text = (tmp_path / "report.md").read_text()
    assert "Ran: 4 histories" in text
    assert "history B, written by arrow, read by hudi-rs: missing a row" in text


def test_a_case_reads_as_it_was_written(tmp_path: Path) -> None:
    history = History((({"k": "a", "o": -0.0, "text": 'x"ü'},), ()))
    kind = Kind("event time", "MERGE_ON_READ", "SPARK", ordering="double", columns=("text",))
    case = Case("one", "why it is kept", kind, history, ({"k": "a", "o": -0.0},))
    assert Case.load(case.save(tmp_path)) == case
