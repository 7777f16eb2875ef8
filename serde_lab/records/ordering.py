"""Ranks ordering values in Apache Hudi's order, as integers that numpy can sort.

Strings compare by their UTF-8 bytes, as Avro's Utf8 and Spark's UTF8String do. NaN is the greatest value
and equal to itself, and -0.0 is below 0.0, as in Java's Double.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import SchemaError


def ranks(values: pa.Array) -> npt.NDArray[np.int64]:
    """Integers in the order of `values` (shape (n,)): equal ones for equal values, for this array only.

    Nulls rank below everything. Raises SchemaError for a type that has no order.
    """
    kind = values.type
    if values.null_count:
        found = ranks(values.drop_null())
        lowest = np.iinfo(np.int64).min
        result = np.full(len(values), lowest, np.int64)
        # dense, so that no value can be the integer that stands for null
        result[values.is_valid().to_numpy(zero_copy_only=False)] = _dense(found)
        return result
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8()).to_numpy().astype(np.int64)
    if pa.types.is_signed_integer(kind):
        return values.to_numpy().astype(np.int64, copy=False)
    if pa.types.is_date32(kind):
        return values.view(pa.int32()).to_numpy().astype(np.int64)
    if pa.types.is_timestamp(kind):
        return values.view(pa.int64()).to_numpy()
    if pa.types.is_floating(kind):
        return _float_order(values.to_numpy().astype(np.float64))
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text or pa.types.is_decimal(kind):
        return _dictionary_ranks(values)
    raise SchemaError(f"type {kind} has no order that a table can merge by")


def not_older(older: Sequence[pa.Array], newer: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Whether each `newer` record stands against its `older` one: ordering(newer) >= ordering(older).

    One array an ordering field, at least one; later fields decide where the earlier ones are equal.
    """
    rows = len(newer[0])
    above = np.zeros(rows, np.bool_)
    equal = np.ones(rows, np.bool_)
    for before, after in zip(older, newer, strict=True):
        together = ranks(pa.concat_arrays([before.cast(after.type), after]))
        low, high = together[:rows], together[rows:]
        above |= equal & (high > low)
        equal &= high == low
    return above | equal


def dense_ranks(ordering: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """0, 1, … in the order of several ordering fields together; equal numbers for equal values."""
    by_value = [ranks(values) for values in ordering]
    if len(by_value) == 1:
        return _dense(by_value[0])
    order = np.lexsort(list(reversed(by_value)))
    changes = np.zeros(len(order), np.bool_)
    for values in by_value:
        ordered = values[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(changes)
    return found


def _float_order(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Double.compareTo's order: the sign-magnitude bits folded into two's complement."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.where(bits < 0, np.int64(np.iinfo(np.int64).min) - bits - 1, bits)


def _dense(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _dictionary_ranks(values: pa.Array) -> npt.NDArray[np.int64]:
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    # Arrow sorts strings by their bytes
    order = pc.sort_indices(distinct).to_numpy().astype(np.int64)
    place = np.empty(len(distinct), np.int64)
    place[order] = np.arange(len(distinct))
    return place[encoded.indices.to_numpy()]
