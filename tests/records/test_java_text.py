"""Numbers as Java writes them, where shortest is not what Java writes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde_lab.records.conversion import java_text
from serde_lab.verify.key_text import text_of


def test_the_least_numbers_have_two_digits() -> None:
    values = pa.array([5e-324, None, -5e-324, 1e-323, 1.5e-323, 0.0, float("nan"), 2e23])
    written = ["4.9E-324", None, "-4.9E-324", "9.9E-324", "1.5E-323", "0.0", "NaN", "2.0E23"]
    assert java_text(values).to_pylist() == written


def test_the_least_float_has_two_digits() -> None:
    values = pa.array(np.array([1.4e-45, 2.8e-45, 1e-3], np.float32))
    assert java_text(values).to_pylist() == ["1.4E-45", "2.8E-45", "0.001"]


def test_years_beyond_four_digits_have_a_sign() -> None:
    days = [2_932_896, 2_932_897, None, -719_529, -719_528, 0, 100_000_000, -1_000_000, 2**31 - 1]
    written = [
        "9999-12-31",
        "+10000-01-01",
        None,
        "-0001-12-31",
        "0000-01-01",
        "1970-01-01",
        "+275760-09-13",
        "-0768-02-04",
        "+5881580-07-11",
    ]
    values = pa.array(days, pa.int32()).cast(pa.date32())
    assert java_text(values).to_pylist() == written
    assert java_text(values.slice(1)).to_pylist() == written[1:]
    # what a writer is judged by reads them alike
    assert text_of(pa.table({"d": values}), "d").to_pylist() == written
