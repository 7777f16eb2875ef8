"""Columns of every kind can be made up, and every strategy says what it expects a value of each to cost."""

from typing import get_args

import pyarrow as pa
import pytest

from serde_lab.lab.cells.codec_cases import batch_of, values_of
from serde_lab.lab.cells.codec_cells import measure_verbs
from serde_lab.lab.cells.verb_times import VERBS
from serde_lab.records.schema import check_supported
from serde_lab.scenario.sections import ColumnType
from serde_lab.serde import registry
from serde_lab.serde.interface import SerdeOptions
from serde_lab.serde.prediction import expected_costs

KINDS = get_args(ColumnType)
ARMS = [(n, e) for n in registry.BUILT_IN for e in registry.strategy(n).executions]


@pytest.mark.parametrize(("name", "execution"), ARMS)
def test_every_kind_has_an_expected_cost(name: str, execution: str) -> None:
    expected = expected_costs(registry.strategy(name), execution)
    assert set(expected) == {"record", *get_args(ColumnType)}
    assert all(size is not None and ns is not None for size, ns in expected.values())


def test_bytes_are_those_of_a_column() -> None:
    """The typed row's slots are 8 bytes, and a null bit; twelve letters have a part of their own."""

    def frame_bytes(kinds: list[str]) -> float:
        schema, batch = batch_of([values_of(kind, 500, i) for i, kind in enumerate(kinds)], 500)
        verbs, size = measure_verbs(registry.bind("internal_row", schema, SerdeOptions()), batch)
        assert set(verbs) == set(VERBS)
        return size / 500

    alone = frame_bytes(["bool"])
    assert (frame_bytes(["bool", *["int64"] * 8]) - alone) / 8 == pytest.approx(8.125)
    assert (frame_bytes(["bool", *["string"] * 8]) - alone) / 8 == pytest.approx(16.125)


@pytest.mark.parametrize("kind", get_args(ColumnType))
def test_values_are_of_a_supported_type_and_vary(kind: str) -> None:
    values = values_of(kind, 50, 1)
    check_supported(pa.schema([pa.field("c", values.type)]))
    values.validate(full=True)
    assert values.null_count == 0
    assert len({str(v) for v in values}) > (1 if kind == "bool" else 20)
    schema, batch = batch_of([values], 50)
    bound = registry.bind("internal_row", schema, SerdeOptions())
    assert bound.from_arrow(batch).to_arrow().equals(batch)
