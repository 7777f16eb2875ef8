"""Numbers as Java writes them, where shortest is not what Java writes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import DataError
from serde_lab.records.conversion import java_text, varies_with_java
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import RecordSchema
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


IN_JAVA_17 = {
    pa.float64(): {
        2e23: "1.9999999999999998E23",
        2.427018673716237e17: "2.42701867371623712E17",
        1e-323: "9.9E-324",
        2.0**-44: "5.684341886080802E-14",
        2.0**53: "9.007199254740992E15",
    },
    pa.float32(): {
        78371312.0: "7.8371312E7",
        673492893696.0: "6.7349289E11",
        2.0**-27: "7.4505806E-9",
    },
}
PLAIN = [0.0, -0.0, 1e-3, 9e-4, 1e7, 2.0**-10, 16777215.0, float("inf"), float("nan"), None]


@pytest.mark.parametrize("kind", IN_JAVA_17, ids=str)
def test_numbers_that_java_writes_in_two_ways_are_no_keys_and_no_folders(kind: pa.DataType) -> None:
    plain = pa.array(PLAIN, kind)
    assert not varies_with_java(plain).any()
    for value in IN_JAVA_17[kind]:
        rows = pa.record_batch({"x": pa.array([1.5, None, -value], kind), "id": [1, 2, 3]})
        assert varies_with_java(rows.column("x")).tolist() == [False, False, True]
        alone = KeyGenerator(RecordSchema(rows.schema, ("id",), ("x",)))
        several = KeyGenerator(RecordSchema(rows.schema, ("x", "id"), ()))
        for make in (alone.partition_paths, several.record_keys):
            make(rows.slice(0, 2))
            with pytest.raises(DataError, match=r"'x' holds -.*differs between versions of Java"):
                make(rows)
