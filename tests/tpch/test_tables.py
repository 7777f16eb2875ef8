"""What `tpch.generator` says of the tables is what the generator makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tpch.generator import TABLES, Generated, generate

pytestmark = pytest.mark.slow

FACTOR = 0.01
"""One of the small factors at which partsupp repeats no keys."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Generated]:
    out = tmp_path_factory.mktemp("tpch")
    return {name: generate(name, FACTOR, out) for name in TABLES}


@pytest.mark.parametrize("name", TABLES)
def test_columns_keys_and_sizes(name: str, made: Mapping[str, Generated]) -> None:
    table, folder = TABLES[name], made[name].folder
    schema = pq.read_schema(next(folder.glob("*.parquet")))
    assert tuple(schema.names) == table.columns
    assert schema.field(table.primary_key[0]).type == pa.int64()
    assert not any(pa.types.is_string_view(t) for t in schema.types)
    assert all(field.metadata is None or b"PARQUET:field_id" in field.metadata for field in schema)
    rows = made[name].manifest.rows
    assert rows == pytest.approx(table.rows_at(FACTOR), rel=0.01)
    assert rows == table.rows_at(FACTOR) or name == "lineitem"
    assert _count(folder, f"count(DISTINCT ({', '.join(table.primary_key)}))") == rows
    # what makes event_ts necessary
    dates = [column for column in schema.names if column.endswith("date")]
    assert all(pa.types.is_date32(schema.field(column).type) for column in dates)


def test_partsupp_repeats_no_key_from_a_factor_on() -> None:
    """By the specification's formula for the suppliers of a part (section 4.2.3, PS_SUPPKEY)."""
    numbers = np.arange(4)[:, None]

    def repeats(suppliers: int) -> bool:
        # a part's number divided by the number of suppliers; there are 20 parts a supplier
        steps = suppliers // 4 + np.arange(21)
        chosen = np.sort(numbers * steps % suppliers, axis=0)
        return bool((np.diff(chosen, axis=0) == 0).any())

    least = round(TABLES["partsupp"].unique_from * 10_000)
    assert not any(map(repeats, range(least, 10 * least)))
    assert [n for n in (100, 120, 150, 180, 200, 210) if repeats(n)] == [120, 150, 180, 210]


def _count(folder: Path, what: str) -> int:
    with duckdb.connect() as connection:
        row = connection.execute(f"SELECT {what} FROM '{folder}/*.parquet'").fetchone()
    assert row is not None
    return int(row[0])
