"""Decimals from unscaled integers, against Python's own decimals."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.records.plain_form import LONGEST, scaled

UNSCALED = st.integers(-(10**LONGEST) + 1, 10**LONGEST - 1)


@given(st.lists(st.none() | UNSCALED, max_size=20), st.integers(0, LONGEST), st.integers(0, 3))
def test_values_and_nulls_come_back(values: list[int | None], scale: int, skipped: int) -> None:
    kind = pa.decimal128(LONGEST, scale)
    expected = [None if v is None else Decimal(v).scaleb(-scale) for v in values]
    found = scaled(pa.array(values, pa.int64()).slice(skipped), kind)
    found.validate(full=True)
    assert found.equals(pa.array(expected[skipped:], kind))
