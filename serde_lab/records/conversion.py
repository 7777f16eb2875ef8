"""Converts values as Hudi does: to the text that Java gives them, and to the types of a changed schema.

Columns and nested fields are matched by name. A column may be added, left out, moved, or become wider.
Sources: the Avro specification's schema resolution, and Hudi's AvroSchemaEvolutionUtils and
HoodieAvroUtils#rewriteRecord, which also allow numbers to become text:

| from           | may become                                                        |
|----------------|-------------------------------------------------------------------|
| int            | long, float, double, string                                       |
| long           | float, double, string                                             |
| float          | double (by its digits: 0.1f becomes 0.1), string                  |
| double         | string                                                            |
| decimal        | a decimal with more digits and the same scale                     |
| string, binary | each other in rows of a batch; a table's column keeps its type    |
| struct         | one with fields added or moved, or whose fields become wider      |
| list, map      | one with wider elements                                           |

Keys, partition paths and numbers that become text have Java's text. Sources: `toString` of Long, Boolean,
LocalDate, BigDecimal, Float and Double, and what Apache Hudi 1.2.0 writes into record keys with the AVRO
record type (`tests/peers/test_keys_of_hudi.py` compares with it):

| type                   | text                                                                  |
|------------------------|-----------------------------------------------------------------------|
| string                 | unchanged                                                             |
| integers, boolean      | 12, -1, true                                                          |
| date32                 | 1992-01-02; +10000-01-01 and -0001-12-31 beyond four digits of a year |
| decimal                | 12.30; with an exponent where the value is small: 1E-7                |
| timestamp              | its microseconds since 1970                                           |
| binary                 | its bytes as lower-case hexadecimal digits                            |
| float, double          | 1.0, 1.0E10, NaN: as few digits as identify it, as in Java 19         |

Before Java 19 some floats and doubles, such as 2E23, had more digits; others, such as 2^-44, ended in
another digit. `varies_with_java` knows where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.errors import DataError, SchemaError, TableError
from serde_lab.records.buffers import binary_array, spans_of
from serde_lab.records.plain_form import to_plain
from serde_lab.records.schema import is_decimal, is_list

_LAST_OF_FOUR_DIGITS = 2_932_896  # 9999-12-31, in days since 1970


def has_text(kind: pa.DataType) -> bool:
    """Whether `java_text` supports values of the type."""
    return (
        pa.types.is_string(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_binary(kind)
    )


def java_text(values: pa.Array) -> pa.StringArray:
    """The text of each value, of a type for which `has_text` is true; nulls stay null."""
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if pa.types.is_binary(kind):
        return _hexadecimal(values)
    if pa.types.is_floating(kind):
        return _float_text(values)
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz)).view(pa.int64()).cast(pa.string())
    if pa.types.is_date32(kind):
        return _date_text(values)
    # for decimals too: Arrow uses an exponent below 1e-6, as BigDecimal.toString does
    return values.cast(pa.string())


def _date_text(values: pa.Date32Array) -> pa.StringArray:
    text = values.cast(pa.string())
    far = pc.fill_null(pc.greater(values.view(pa.int32()), _LAST_OF_FOUR_DIGITS), False)
    if not pc.any(far).as_py():
        return text
    # Arrow writes no sign there, and has no text at all beyond the year 32767
    days = values.filter(far).view(pa.int32()).to_numpy().astype(np.int64).view("datetime64[D]")
    signed = pc.binary_join_element_wise("+", pa.array(np.datetime_as_string(days)), "")
    return pc.replace_with_mask(text, far, signed)


def _float_text(values: pa.Array) -> pa.StringArray:
    """Plain from 1e-3 up to 1e7, where Arrow is plain too; otherwise one digit, a point and an exponent."""
    shortest = values.cast(pa.string())
    whole = pc.invert(pc.match_substring(shortest, "."))
    plain = pc.if_else(whole, pc.binary_join_element_wise(shortest, "0", "."), shortest)
    size = pc.abs(values)
    # the bounds in the type of the values: 0.001 as a float is not the double 0.001
    least, most = (pa.scalar(bound, values.type) for bound in (1e-3, 1e7))
    is_plain = pc.or_(
        pc.and_(pc.greater_equal(size, least), pc.less(size, most)), pc.equal(size, 0)
    )
    if pc.all(is_plain).as_py() is not False:
        return plain
    text = _two_digits(pc.if_else(is_plain, plain, _scientific(shortest)), values, size)
    text = pc.if_else(pc.is_nan(values), "NaN", text)
    infinite = pc.if_else(pc.greater(values, 0), "Infinity", "-Infinity")
    return pc.if_else(pc.is_inf(values), infinite, text)


def varies_with_java(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Where a float or double may have another text before Java 19, shape (rows,).

    These are integers beyond those that the type holds one by one, and very small powers of two. Source: the
    texts that Java 17 gave to 20 million values, and to all powers of two.
    """
    size = np.abs(values.to_numpy(zero_copy_only=False))
    one_by_one = 2**24 if pa.types.is_float32(values.type) else 2**53
    power_of_two = np.frexp(size)[0] == 0.5
    return np.where(size < 1e-7, power_of_two, np.isfinite(size) & (size >= one_by_one))


def _two_digits(text: pa.StringArray, values: pa.Array, size: pa.Array) -> pa.StringArray:
    """Java uses two digits even where one is enough, and takes the nearest: 4.9E-324, not 5.0E-324.

    This matters only for the very smallest numbers, of a few bits, which have a nearer text of two digits.
    """
    bound = pa.scalar(1e-43 if pa.types.is_float32(values.type) else 1e-322, values.type)
    least = pc.and_(pc.less(size, bound), pc.match_substring_regex(text, r"\A-?[1-9]\.0E"))
    if not pc.any(least).as_py():
        return text
    nearest = [f"{value.as_py():.1e}".upper() for value in values.filter(least)]
    return pc.replace_with_mask(text, least, pa.array(nearest, pa.string()))


def _scientific(shortest: pa.StringArray) -> pa.StringArray:
    pattern = r"\A(?P<s>-?)(?P<i>\d+)\.?(?P<f>\d*)e?(?P<e>[+-]?\d*)\z"
    parts = pc.extract_regex(shortest, pattern)
    sign, before, after, power = (pc.struct_field(parts, name) for name in "sife")
    digits = pc.binary_join_element_wise(before, after, "")
    leading = pc.utf8_ltrim(digits, "0")
    zeros = pc.subtract(pc.utf8_length(digits), pc.utf8_length(leading))
    stated = pc.if_else(pc.equal(power, ""), "0", pc.utf8_ltrim(power, "+")).cast(pa.int32())
    exponent = pc.subtract(pc.add(stated, pc.utf8_length(before)), pc.add(zeros, 1))
    significant = pc.utf8_rtrim(leading, "0")
    rest = pc.utf8_slice_codeunits(significant, 1)
    return pc.binary_join_element_wise(
        sign,
        pc.utf8_slice_codeunits(significant, 0, 1),
        ".",
        pc.if_else(pc.equal(rest, ""), "0", rest),
        "E",
        exponent.cast(pa.string()),
        "",
    )


def _hexadecimal(values: pa.BinaryArray) -> pa.StringArray:
    data, ends = spans_of(values)
    text = binary_array(2 * ends, data.to_pybytes().hex().encode()).cast(pa.string())
    return pc.if_else(values.is_valid(), text, None) if values.null_count else text


def java_trim(text: str) -> str:
    """java.lang.String#trim, which does not remove no-break or ideographic spaces."""
    return text.strip(_TRIMMED)


_TRIMMED = "".join(map(chr, range(0x21)))


_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int32(): (pa.int64(), pa.float32(), pa.float64(), pa.string()),
    pa.int64(): (pa.float32(), pa.float64(), pa.string()),
    pa.float32(): (pa.float64(), pa.string()),
    pa.float64(): (pa.string(),),
}
_ALIKE = {(pa.string(), pa.binary()), (pa.binary(), pa.string())}


def is_wider(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether values of `narrow` can become `wide`, for two different types that are not nested."""
    if is_decimal(narrow):
        return is_decimal(wide) and narrow.scale == wide.scale and narrow.precision < wide.precision
    return wide in _WIDER.get(narrow, ())


def evolved(table: pa.Schema, batch: pa.Schema, *, fill: bool) -> pa.Schema:
    """The schema of a table with schema `table` after rows of `batch` are written; all in storage types.

    It has the table's columns in their order, each with the wider of both types, then the new ones. With
    `fill` a column that the batch lacks is null in its rows; without it, raises SchemaError naming the
    column. The same error is raised if two types are incompatible.
    """
    return pa.schema(_fields(table, batch, fill, ""))


def left_out(whole: Iterable[pa.Field], part: Iterable[pa.Field], path: str = "") -> list[str]:
    """Paths of the fields of `whole` that `part` lacks, at any depth."""
    given = {field.name: field.type for field in part}
    found = []
    for field in whole:
        at = f"{path}{field.name}"
        if field.name in given:
            found += _left_out_of(field.type, given[field.name], at)
        else:
            found.append(at)
    return found


def _left_out_of(whole: pa.DataType, part: pa.DataType, path: str) -> list[str]:
    if pat.is_struct(whole) and pat.is_struct(part):
        return left_out(whole, part, f"{path}.")
    if is_list(whole) and is_list(part):
        return _left_out_of(whole.value_type, part.value_type, f"{path}.element")
    if pat.is_map(whole) and pat.is_map(part):
        return _left_out_of(whole.item_type, part.item_type, f"{path}.value")
    return []


def _fields(
    table: Iterable[pa.Field], batch: Iterable[pa.Field], fill: bool, path: str
) -> list[pa.Field]:
    there = {field.name: field for field in table}
    given = {field.name: field for field in batch}
    merged = []
    for name, field in there.items():
        column = f"{path}{name}"
        if name not in given:
            if not fill:
                raise SchemaError(
                    f"column {column!r} of the table is not in the data",
                    hint="hoodie.write.set.null.for.missing.columns=true makes it null in these rows",
                )
            merged.append(field)
            continue
        kind = _type(field.type, given[name].type, fill, column)
        merged.append(pa.field(name, kind, field.nullable or given[name].nullable))
    # new columns are nullable, since rows of older files have no value for them
    merged += [f.with_nullable(True) for name, f in given.items() if name not in there]
    return merged


def _type(table: pa.DataType, batch: pa.DataType, fill: bool, path: str) -> pa.DataType:
    if table == batch or is_wider(table, batch) or (table, batch) in _ALIKE:
        return table
    if is_wider(batch, table):
        return batch
    if pat.is_struct(table) and pat.is_struct(batch):
        return pa.struct(_fields(table, batch, fill, f"{path}."))
    if is_list(table) and is_list(batch):
        item = _type(table.value_type, batch.value_type, fill, f"{path}.element")
        return pa.list_(pa.field("element", item))
    if pat.is_map(table) and pat.is_map(batch):
        item = _type(table.item_type, batch.item_type, fill, f"{path}.value")
        return pa.map_(pa.string(), pa.field("value", item))
    raise SchemaError(
        f"column {path!r} is of type {batch}, and the table has {table}: neither type can become the other"
    )


def fit(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert `values` of an older or narrower type to `kind`. Nested fields match by name; missing are null.

    Raises ArrowInvalid or ArrowNotImplementedError if the types are incompatible, DataError for bytes that
    are not text.
    """
    if values.type == kind:
        return values
    if pat.is_struct(kind) and pat.is_struct(values.type):
        return _fit_struct(values, kind)
    if is_list(kind) and is_list(values.type):
        if not pat.is_list(values.type):
            # Arrow's own cast of a view leaves out the last offset, and with it the last list
            values = to_plain(values)
        return _around(values, kind, fit(values.values, kind.value_type))
    if pat.is_map(kind) and pat.is_map(values.type):
        keys, items = fit(values.keys, kind.key_type), fit(values.items, kind.item_type)
        entries = pa.StructArray.from_arrays(
            [keys, items], fields=[kind.key_field, kind.item_field]
        )
        return _around(values, kind, entries)
    return _fit_leaf(values, kind)


def _fit_leaf(values: pa.Array, kind: pa.DataType) -> pa.Array:
    narrow = values.type
    if pat.is_string(kind) and (pat.is_integer(narrow) or pat.is_floating(narrow)):
        return java_text(values)
    if pat.is_float64(kind) and pat.is_float32(narrow):
        # as Hudi does: through Java's digits, so that 0.1 stays 0.1
        return java_text(values).cast(kind)
    if pat.is_floating(kind) and pat.is_integer(narrow):
        return values.cast(kind, safe=False)  # rounds to the nearest, as Java does
    if pat.is_string(kind) and pat.is_binary(narrow):
        try:
            return values.cast(kind)
        except pa.ArrowInvalid as exc:
            raise DataError(f"a value in a text column is not UTF-8: {exc}") from exc
    return values.cast(kind)


def _fit_struct(values: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    there = {values.type.field(i).name: i for i in range(values.type.num_fields)}
    children = [
        fit(values.field(there[f.name]), f.type)
        if f.name in there
        else pa.nulls(len(values), f.type)
        for f in kind
    ]
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _around(values: pa.Array, kind: pa.DataType, children: pa.Array) -> pa.Array:
    """A list or map with the offsets and nulls of `values` and the given children."""
    buffers = values.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(values), buffers, values.null_count, values.offset, [children]
    )


def conform(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """`batch` with exactly the columns of `schema`. Raises TableError, naming `where` and the column."""
    if batch.schema.equals(schema):
        return batch
    columns = [_column(batch, field, where) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def conform_table(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Like `conform`, for all batches of a table."""
    if table.schema.equals(schema):
        return table
    batches = [conform(batch, schema, where) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, schema)


def _column(batch: pa.RecordBatch, field: pa.Field, where: str) -> pa.Array:
    positions: Sequence[int] = batch.schema.get_all_field_indices(field.name)
    if not positions:
        if not field.nullable:
            raise TableError(f"{where}: column {field.name!r} is missing and must not be null")
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(positions[0])
    if column.type == field.type:
        return column
    try:
        return fit(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise TableError(
            f"{where}: column {field.name!r} is stored as {column.type} and the table has "
            f"{field.type}: {exc}"
        ) from exc
