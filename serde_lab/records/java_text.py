"""Converts values to the text that Java gives them, for keys, paths and promoted columns; vectorised.

Sources: `toString` of Long, Boolean, LocalDate, BigDecimal, Float and Double, and what Apache Hudi 1.2.0
writes into record keys with the AVRO record type (`tests/peers/test_keys_of_hudi.py` compares with it).

| type                   | text                                                                  |
|------------------------|-----------------------------------------------------------------------|
| string                 | unchanged                                                             |
| integers, boolean      | 12, -1, true                                                          |
| date32                 | 1992-01-02; +10000-01-01 and -0001-12-31 beyond four digits of a year |
| decimal                | 12.30; with an exponent where the value is small: 1E-7                |
| timestamp              | its microseconds since 1970                                           |
| binary                 | its bytes as lower-case hexadecimal digits                            |
| float, double          | 1.0, 1.0E10, NaN: as few digits as identify it, as in Java 19         |

Before Java 19 a few floats and doubles, such as 2E23, had more digits; others, such as 2^-44, ended in
another digit.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(values) + 1, 4 * values.offset)
    data = b"" if data_buffer is None else memoryview(data_buffer)[offsets[0] : offsets[-1]]
    digits = bytes(data).hex().encode()
    doubled = (offsets - offsets[0]) * np.int32(2)
    text = pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer(doubled.tobytes()), pa.py_buffer(digits)]
    )
    return pc.if_else(values.is_valid(), text, None) if values.null_count else text


def java_trim(text: str) -> str:
    """java.lang.String#trim, which does not remove no-break or ideographic spaces."""
    return text.strip(_TRIMMED)


_TRIMMED = "".join(map(chr, range(0x21)))
