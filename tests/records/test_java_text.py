"""Numbers as Java writes them, where shortest is not what Java writes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde_lab.records.java_text import java_text


def test_the_least_numbers_have_two_digits() -> None:
    values = pa.array([5e-324, None, -5e-324, 1e-323, 1.5e-323, 0.0, float("nan"), 2e23])
    written = ["4.9E-324", None, "-4.9E-324", "9.9E-324", "1.5E-323", "0.0", "NaN", "2.0E23"]
    assert java_text(values).to_pylist() == written


def test_the_least_float_has_two_digits() -> None:
    values = pa.array(np.array([1.4e-45, 2.8e-45, 1e-3], np.float32))
    assert java_text(values).to_pylist() == ["1.4E-45", "2.8E-45", "0.001"]
