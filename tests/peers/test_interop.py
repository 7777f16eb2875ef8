"""The pairwise part of the cover that `make interop` runs whole (`interop/cells.py`), and its bookkeeping."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.peers.interop.cells import DIMENSIONS, OPERATIONS, Cell, all_cells, pairwise_cells
from tests.peers.interop.chain import Chain, Outcome
from tests.peers.interop.matrix import write_matrix
from tests.peers.interop.state import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.hudi
@pytest.mark.filterwarnings("ignore::serde_lab.errors.PortabilityWarning")
@pytest.mark.parametrize("cell", pairwise_cells(), ids=lambda c: f"{c.name} | {c.operations[0]}")
def test_all_readers_see_the_right_rows(
    cell: Cell, hudi_session: SparkSession, tmp_path: Path
) -> None:
    outcomes = list(Chain(hudi_session, tmp_path, cell).outcomes())
    assert [one for one in outcomes if one.state == "wrong"] == []
    assert [one.operation for one in outcomes] == list(cell.operations)


def values(cell: Cell) -> Iterator[tuple[str, ...]]:
    for operation in cell.operations:
        yield cell.kind, cell.partition, cell.author, cell.types, cell.record_type, operation


def test_every_pair_of_values_meets() -> None:
    met = {
        pair
        for cell in pairwise_cells()
        for point in values(cell)
        for pair in itertools.combinations(enumerate(point), 2)
    }
    numbered = [[(n, value) for value in column] for n, column in enumerate(DIMENSIONS)]
    wanted = {
        pair
        for one, other in itertools.combinations(numbered, 2)
        for pair in itertools.product(one, other)
    }
    assert wanted - met == {((0, "copy on write"), (5, "compact"))}  # which has no logs


def test_the_whole_cover_has_every_cell_once() -> None:
    names = [cell.name for cell in all_cells()]
    assert len(names) == len(set(names)) == 3 * 3 * 5 * 6 * 2


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first, second, third = all_cells()[:3]
    state = State.load(tmp_path / "state.jsonl")
    state.add(first, tuple(Outcome(name, "right") for name in OPERATIONS))
    state.add(second, (Outcome("read", "right"), Outcome("upsert", "wrong", "lost | a row")))
    with (tmp_path / "state.jsonl").open("a") as file:
        file.write('{"kind": "torn')
    State.load(tmp_path / "state.jsonl").add(third, (Outcome("read", "right"),))
    again = State.load(tmp_path / "state.jsonl")
    assert [again.has(cell) for cell in (first, second, third)] == [True, True, False]
    assert [(name, one.detail) for name, one in again.wrong()] == [(second.name, "lost | a row")]
    write_matrix(tmp_path / "matrix.md", again, 540)
    text = (tmp_path / "matrix.md").read_text()
    assert "Ran: 3 of 540 cells" in text
    assert f"- {second.name}: upsert: lost | a row" in text


def test_cells_of_other_versions_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    cell = all_cells()[0]
    State.load(path).add(cell, (Outcome("read", "right"),))
    path.write_text(path.read_text().replace('"Apache Hudi": "1.2.0"', '"Apache Hudi": "1.1.0"'))
    assert State.load(path).finished == {}
