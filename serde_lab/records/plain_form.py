"""Converts arrays to their plain form, one layout per type, so that equal values have equal bytes in memory.

A plain array has the type that `schema.plain_type` gives and offset 0. It has a validity bitmap only if
something is null, and zeros (or nothing, for strings and lists) under every null. Its buffers end where
the values end, and its children hold only what their parents refer to. Strategies serialise plain arrays,
so that Arrow's different layouts of the same values do not show in frames.

`first_difference` compares two batches to the bit: types and nulls must be equal, -0.0 differs from 0.0, and
every NaN equals every NaN (Python, numpy and Arrow do not keep the bits inside a NaN).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.lib as lib
import pyarrow.types as pat

from serde_lab.errors import DataError
from serde_lab.records.buffers import MOST_BYTES, offsets_of
from serde_lab.records.schema import (
    child_fields,
    is_binary,
    is_list,
    is_nested,
    is_string,
    plain_type,
)

LONGEST = 18
"""The most digits of a decimal that always fit into an int64."""
_NARROW_DECIMALS = frozenset([lib.Type_DECIMAL32, lib.Type_DECIMAL64])


def to_plain(array: pa.Array) -> pa.Array:
    """`array` in its plain form; shares memory with it where the layout allows.

    Raises DataError if one array holds more than 2 GiB of text or bytes, or more than 2^31 - 1 items.
    """
    t = array.type
    if is_string(t) or is_binary(t):
        return _plain_text(array)
    if is_nested(t):
        return _plain_nested(array)
    if pat.is_boolean(t):
        return _plain_bits(array)
    if t.id in _NARROW_DECIMALS:
        array = array.cast(plain_type(t))
    return _plain_fixed(array)


def to_plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every column of `batch` in its plain form, under the same names."""
    arrays = [to_plain(column) for column in batch.columns]
    fields = [
        pa.field(f.name, a.type, f.nullable) for f, a in zip(batch.schema, arrays, strict=True)
    ]
    return pa.record_batch(arrays, schema=pa.schema(fields))


def from_plain(array: pa.Array, t: pa.DataType) -> pa.Array:
    """The values of the plain `array` as type `t`, whose plain type must be `array.type`."""
    if array.type.equals(t):
        return array
    if not is_nested(t):
        return array.cast(t)
    if array.offset or array.type != plain_type(t):
        array = to_plain(array)
    if pat.is_struct(t):
        children = [from_plain(array.field(i), field.type) for i, field in enumerate(t)]
        return _build(t, array, [], children)
    offsets = array.buffers()[1]
    if pat.is_map(t):
        entries = pa.StructArray.from_arrays(
            [from_plain(array.keys, t.key_type), from_plain(array.items, t.item_type)],
            fields=[t.key_field, t.item_field],
        )
        return _build(t, array, [offsets], [entries])
    child = from_plain(array.values, t.value_type)
    if pat.is_list(t):
        return _build(t, array, [offsets], [child])
    wide = offsets_of(array)
    if not pat.is_list_view(t):
        wide = wide.astype(np.int64)
    if pat.is_large_list(t):
        return _build(t, array, [pa.py_buffer(wide)], [child])
    sizes = np.diff(wide)
    return _build(t, array, [pa.py_buffer(wide[:-1].copy()), pa.py_buffer(sizes)], [child])


def from_plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [from_plain(a, f.type) for a, f in zip(batch.columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def null_mask(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """True where `array` is null, or None if nothing is."""
    if not array.null_count:
        return None
    mask: npt.NDArray[np.bool_] = pc.is_null(array).to_numpy(zero_copy_only=False)
    return mask


def list_columns(schema: pa.Schema) -> list[str]:
    """Columns that hold lists, at any depth, and so may hold null elements."""
    return [field.name for field in schema if _holds_list(field.type)]


def null_elements(values: pa.Array) -> int:
    """Number of null elements in all lists of `values`, at any depth; elements of null rows do not count."""
    kind = values.type
    if not _holds_list(kind):
        return 0
    if is_list(kind):
        elements = pc.list_flatten(values)
        return int(elements.null_count) + null_elements(elements)
    if pa.types.is_map(kind):
        # a map is a list of entries; its child arrays ignore slices and null rows
        fields = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
        entries = pc.list_flatten(values.cast(pa.list_(pa.struct(fields))))
        return null_elements(entries.field(1))
    return sum(null_elements(part) for part in values.flatten())


def _holds_list(kind: pa.DataType) -> bool:
    return is_list(kind) or any(_holds_list(field.type) for field in child_fields(kind))


def validity_buffer(mask: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Arrow's validity bitmap for a null mask."""
    return None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))


def _build(
    t: pa.DataType, like: pa.Array, buffers: list[pa.Buffer], children: list[pa.Array]
) -> pa.Array:
    """An array of type `t` that is null where `like` is."""
    validity = validity_buffer(null_mask(like))
    return pa.Array.from_buffers(
        t, len(like), [validity, *buffers], like.null_count, 0, children or None
    )


def _plain_fixed(array: pa.Array) -> pa.Array:
    width = array.type.bit_width // 8
    mask = null_mask(array)
    data = array.buffers()[1] or pa.py_buffer(b"")
    if mask is None:
        exact = data.size == len(array) * width
        if exact and array.offset == 0 and array.buffers()[0] is None:
            return array
        data = data.slice(array.offset * width, len(array) * width)
        return pa.Array.from_buffers(array.type, len(array), [None, data], 0)
    whole = np.frombuffer(data, np.uint8, len(array) * width, array.offset * width)
    values = whole.reshape(len(array), width).copy()
    values[mask] = 0
    return pa.Array.from_buffers(
        array.type, len(array), [validity_buffer(mask), pa.py_buffer(values)], array.null_count
    )


def _plain_bits(array: pa.Array) -> pa.Array:
    # always rebuilt, because the bits behind the last value are undefined
    mask = null_mask(array)
    values = (array if mask is None else array.fill_null(False)).to_numpy(zero_copy_only=False)
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(
        array.type, len(array), [validity_buffer(mask), bits], array.null_count
    )


def _plain_text(array: pa.Array) -> pa.Array:
    t = array.type
    target = plain_type(t)
    if t != target:
        if not (pat.is_string_view(t) or pat.is_binary_view(t)) and len(array):
            ends = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
            _check_offset(int(ends[-1] - ends[0]), t)
        try:
            array = array.cast(target)
        except pa.ArrowInvalid as exc:
            raise DataError(f"a column of type {t} cannot be read: {exc}") from exc
    if not len(array):
        return pa.array([], target)
    mask = null_mask(array)
    whole = array.buffers()[1]
    offsets = np.frombuffer(whole, np.int32, len(array) + 1, array.offset * 4)
    data = array.buffers()[2] or pa.py_buffer(b"")
    exact = whole.size == offsets.nbytes and data.size == offsets[-1]
    if mask is not None and np.diff(offsets)[mask].any():
        filled = _plain_text(array.fill_null("" if pat.is_string(target) else b""))
        offsets_buffer, data = filled.buffers()[1:]
    elif array.offset or offsets[0]:
        data = data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        offsets_buffer = pa.py_buffer(offsets - offsets[0])
    elif exact and mask is None and array.buffers()[0] is None:
        return array
    else:
        # Arrow's IPC would also write offsets behind the last one
        offsets_buffer = whole.slice(0, offsets.nbytes)
        data = data.slice(0, int(offsets[-1]))
    return pa.Array.from_buffers(
        target, len(array), [validity_buffer(mask), offsets_buffer, data], array.null_count
    )


def _plain_nested(array: pa.Array) -> pa.Array:
    t = array.type
    if pat.is_map(t):
        return _plain_map(array)
    if is_list(t):
        child = to_plain(array.flatten())
        _check_offset(len(child), t)
        return _build(plain_type(t), array, [_offsets_of(pc.list_value_length(array))], [child])
    children = [to_plain(child) for child in array.flatten()]
    return _build(plain_type(t), array, [], children)


def _plain_map(array: pa.Array) -> pa.Array:
    # a map is a list of key and value pairs, and only lists can be flattened
    pairs = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    whole = array.buffers()[:2], array.null_count, array.offset
    as_list = pa.Array.from_buffers(pa.list_(pairs.type), len(array), *whole, [pairs])
    entries = to_plain(as_list.flatten())
    t = plain_type(array.type)
    entries = pa.StructArray.from_arrays(
        [entries.field(0), entries.field(1)], fields=[t.key_field, t.item_field]
    )
    return _build(t, array, [_offsets_of(pc.list_value_length(as_list))], [entries])


def _offsets_of(sizes: pa.Array) -> pa.Buffer:
    lengths = (sizes.fill_null(0) if sizes.null_count else sizes).to_numpy()
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.py_buffer(offsets)


def _check_offset(total: int, t: pa.DataType) -> None:
    if total > MOST_BYTES:
        raise DataError(
            f"a column of type {t} holds {total} bytes or items in one batch, "
            f"expected at most {MOST_BYTES}",
            "send smaller batches",
        )


def reinterpret(array: pa.Array, t: pa.DataType) -> pa.Array:
    """A plain array's memory viewed as type `t`, which must have the same layout (such as date and int32)."""
    validity = array.buffers()[0] if array.null_count else None
    if not is_nested(t):
        buffers = [validity, *array.buffers()[1:]]
        return pa.Array.from_buffers(t, len(array), buffers, array.null_count)
    if pat.is_struct(t):
        children = [reinterpret(array.field(i), f.type) for i, f in enumerate(t)]
    elif pat.is_map(t):
        entries = [reinterpret(array.keys, t.key_type), reinterpret(array.items, t.item_type)]
        children = [pa.StructArray.from_arrays(entries, fields=[t.key_field, t.item_field])]
    else:
        children = [reinterpret(array.values, t.value_type)]
    offsets = [] if pat.is_struct(t) else [array.buffers()[1]]
    return pa.Array.from_buffers(t, len(array), [validity, *offsets], array.null_count, 0, children)


def scaled(unscaled: pa.Int64Array, kind: pa.Decimal128Type) -> pa.Array:
    """Decimals of type `kind` (at most LONGEST digits) with the given unscaled values."""
    low = np.frombuffer(unscaled.buffers()[1] or b"", np.int64, len(unscaled), unscaled.offset * 8)
    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0] = low
    np.right_shift(low, 63, out=words[:, 1])  # the sign, repeated
    buffers = [validity_buffer(null_mask(unscaled)), pa.py_buffer(words)]
    return pa.Array.from_buffers(kind, len(unscaled), buffers, unscaled.null_count)


def first_difference(found: pa.RecordBatch, expected: pa.RecordBatch) -> str | None:
    """None if `found` equals `expected`, else a sentence that names column, row and values."""
    if not found.schema.equals(expected.schema):
        return f"the schema is {found.schema}, expected {expected.schema}"
    if len(found) != len(expected):
        return f"there are {len(found)} rows, expected {len(expected)}"
    for name, a, b in zip(expected.schema.names, found.columns, expected.columns, strict=True):
        rows = np.flatnonzero(_differs(to_plain(a), to_plain(b)))
        if len(rows):
            row = int(rows[0])
            return f"column {name!r}, row {row}: {_show(a, row)}, expected {_show(b, row)}"
    return None


def _show(array: pa.Array, row: int) -> str:
    return str(array.slice(row, 1)).replace("\n", "")[:200]


def _differs(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_]:
    """Where two plain arrays of one type and length differ, row by row."""
    differs = np.zeros(len(a), np.bool_)
    masks = [m if (m := null_mask(x)) is not None else np.zeros(len(a), np.bool_) for x in (a, b)]
    differs |= masks[0] != masks[1]
    t = a.type
    if not len(a):
        return differs
    if pat.is_struct(t):
        for i in range(t.num_fields):
            differs |= _differs(a.field(i), b.field(i))
    elif is_list(t) or pat.is_map(t):
        ends = [np.frombuffer(x.buffers()[1], np.int32, len(x) + 1) for x in (a, b)]
        differs |= np.diff(ends[0]) != np.diff(ends[1])
        if not differs.any():
            children = [(x.keys, x.items) if pat.is_map(t) else (x.values,) for x in (a, b)]
            of_item = np.repeat(np.arange(len(a)), np.diff(ends[0]))
            for left, right in zip(*children, strict=True):
                differs[of_item[_differs(left, right)]] = True
    elif pat.is_floating(t):
        bits = np.int32 if t == pa.float32() else np.int64
        values = [np.frombuffer(x.buffers()[1], f"f{t.bit_width // 8}", len(x)) for x in (a, b)]
        same = values[0].view(bits) == values[1].view(bits)
        differs |= ~(same | (np.isnan(values[0]) & np.isnan(values[1])))
    else:
        # null in both is equal; null in one is already in `differs`
        equal = pc.equal(a, b).fill_null(True)
        differs |= ~equal.to_numpy(zero_copy_only=False)
    return differs
