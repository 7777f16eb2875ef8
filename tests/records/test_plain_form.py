"""The plain form: equal values are equal bytes in memory, and come back in the type they had."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serde_lab.errors import DataError
from serde_lab.records.plain_form import first_difference, from_plain, reinterpret, to_plain
from serde_lab.records.schema import plain_type
from serde_lab.serde.conformance.cases import awkward_case, cases, copied, with_garbage_under_nulls
from serde_lab.serde.conformance.values import KINDS


def memory(array: pa.Array) -> bytes:
    """The bytes of all buffers as far as the array uses them."""
    return pa.record_batch([array], names=["c"]).serialize().to_pybytes()


def check_plain(array: pa.Array, t: pa.DataType) -> None:
    array.validate(full=True)
    assert array.type.equals(plain_type(t), check_metadata=True)
    assert array.offset == 0
    assert (array.buffers()[0] is None) == (array.null_count == 0)


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(cases())
def test_equal_values_have_equal_bytes_and_come_back(case) -> None:  # type: ignore[no-untyped-def]
    batch = case[1]
    back = []
    for column, again, garbage in zip(
        batch.columns, copied(batch).columns, with_garbage_under_nulls(batch).columns, strict=True
    ):
        plain = to_plain(column)
        check_plain(plain, column.type)
        assert memory(plain) == memory(to_plain(again)) == memory(to_plain(garbage))
        back.append(from_plain(plain, column.type))
    found = pa.record_batch(back, schema=batch.schema)
    found.validate(full=True)
    assert first_difference(found, batch) is None


def test_awkward_values_come_back() -> None:
    batch = awkward_case()[1]
    arrays = [from_plain(to_plain(c), c.type) for c in batch.columns]
    found = pa.record_batch(arrays, schema=batch.schema)
    assert found.equals(batch) or first_difference(found, batch) is None


def test_plain_columns_are_not_copied() -> None:
    for array in (pa.array([1, 2, 3]), pa.array(["a", "b"]), pa.array([1.5])):
        plain = to_plain(array)
        assert plain.buffers()[-1].address == array.buffers()[-1].address


def test_zeros_stand_under_nulls() -> None:
    data = pa.py_buffer(np.array([7, 8, 9], np.int32))
    array = pa.Array.from_buffers(pa.int32(), 3, [pa.py_buffer(b"\x05"), data])
    assert array.to_pylist() == [7, None, 9]
    assert np.frombuffer(to_plain(array).buffers()[1], np.int32).tolist() == [7, 0, 9]


def test_a_slice_of_lists_holds_only_its_own_items() -> None:
    array = pa.array([[1, 2], None, [3], [4, 5]])[2:]
    plain = to_plain(array)
    assert plain.values.to_pylist() == [3, 4, 5]
    assert plain.to_pylist() == [[3], [4, 5]]


@pytest.mark.parametrize(
    "values", [[1, 2, 3], [True, False, True], ["a", "", "c"], [b"", b"", b""]]
)
def test_nothing_stands_behind_the_last_value(values: list[object]) -> None:
    alone = to_plain(pa.array(values[:1]))
    front = to_plain(pa.array(values)[:1])
    assert [b and b.to_pybytes() for b in front.buffers()] == [
        b and b.to_pybytes() for b in alone.buffers()
    ]


def test_text_beyond_two_gibibytes_is_refused() -> None:
    # pages of zeros that are never touched take no memory
    data = pa.py_buffer(np.zeros(2**31, np.uint8))
    ends = pa.py_buffer(np.array([0, 2**31], np.int64))
    array = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, data])
    with pytest.raises(DataError, match="2147483648 bytes"):
        to_plain(array)


def test_reinterpreting_keeps_memory() -> None:
    array = to_plain(pa.array([[1, None], None, [2**31 - 1]], pa.list_(pa.date32())))
    found = reinterpret(array, pa.list_(pa.int32()))
    assert found.to_pylist() == [[1, None], None, [2**31 - 1]]
    assert found.values.buffers()[1].address == array.values.buffers()[1].address


@given(st.sampled_from(sorted(KINDS)))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_empty_columns_of_every_kind(kind: str) -> None:
    from serde_lab.serde.conformance.values import fixed_type

    t = fixed_type(kind)
    plain = to_plain(pa.array([], t))
    check_plain(plain, t)
    assert from_plain(plain, t).equals(pa.array([], t))
