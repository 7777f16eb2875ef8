"""Computes what input values become in a table, to check a writer: keys and paths as text, and widened types.

Hudi's encoding is implemented here independently of `serde_lab.records.keys`, `partition_time` and
`conversion`, which the writer and the reader use: two implementations find more errors than one. Folders
named by time are computed value by value with Python's own dates, for the letters y M d H h a m s S and the
time zones of `zoneinfo`. Rows of older or narrower schemas are converted to the table's types value by value,
which is slow, and used only where types differ.

Source: what Apache Hudi 1.2.0 wrote with its SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP and CUSTOM key
generators (`tests/peers/test_keys_of_hudi.py` and `test_key_generators_of_hudi.py` verify it), and how it
reads tables whose columns were widened (`tests/peers/test_evolved_tables.py` verifies that).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.errors import SchemaError
from serde_lab.records.schema import is_decimal, is_string, storage_type, values_at
from serde_lab.verify.table_rules import TableRules

_LAST_OF_FOUR_DIGITS = 2_932_896  # 9999-12-31
NO_PARTITION_VALUE = "__HIVE_DEFAULT_PARTITION__"

_PREFIX = "hoodie.keygen.timebased."
_NS = {
    "NANOSECONDS": 1,
    "MICROSECONDS": 10**3,
    "MILLISECONDS": 10**6,
    "SECONDS": 10**9,
    "MINUTES": 60 * 10**9,
    "HOURS": 3600 * 10**9,
    "DAYS": 86400 * 10**9,
}
_UNITS = {
    "UNIX_TIMESTAMP": "SECONDS",
    "EPOCHMILLISECONDS": "MILLISECONDS",
    "EPOCHMICROSECONDS": "MICROSECONDS",
}
_LETTERS = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "hh": "%I",
    "a": "%p",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%f",
    "Z": "%z",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def record_keys(rows: pa.RecordBatch | pa.Table, rules: TableRules) -> pa.ChunkedArray:
    """The record key that each row must have; null if a single key field is null.

    Several key fields, or several partition fields except under CUSTOM, give keys `field:value,field:value`.
    Tables without key fields have generated keys: any key is right that begins with the row's commit time and
    has the generated form.
    """
    fields = rules.schema.record_key
    if not fields:
        return _made_up(rows)
    if rules.bare_keys:
        return text_of(rows, fields[0])
    pieces: list[pa.Array | pa.ChunkedArray | str] = []
    for name in fields:
        text = text_of(rows, name)
        text = pc.fill_null(pc.replace_substring_regex(text, "^$", "__empty__"), "__null__")
        pieces += [f",{name}:" if pieces else f"{name}:", text]
    return _chunked(pc.binary_join_element_wise(*pieces, ""))


def partition_paths(rows: pa.RecordBatch | pa.Table, rules: TableRules) -> pa.ChunkedArray:
    """The partition path that each row must have; "" in a table without partition fields."""
    fields = rules.schema.partition
    if not fields:
        return _chunked(pa.repeat(pa.scalar("", pa.string()), rows.num_rows))
    segments = []
    for place, name in enumerate(fields):
        time = rules.time_of(place)
        texts = time_folders(values_at(rows, name), time) if time else text_of(rows, name)
        encoded = pa.chunked_array([texts.combine_chunks()]).dictionary_encode()
        parts = []
        for chunk in encoded.chunks:
            # the position after the last distinct value stands for null
            names = [_segment(name, text, rules) for text in [*chunk.dictionary.to_pylist(), None]]
            index = pc.fill_null(chunk.indices, len(names) - 1)
            parts.append(pa.array(names, pa.string()).take(index))
        segments.append(pa.chunked_array(parts, pa.string()).combine_chunks())
    return _chunked(pc.binary_join_element_wise(*segments, "/"))


def _segment(name: str, text: str | None, rules: TableRules) -> str:
    value = text or NO_PARTITION_VALUE
    if rules.url_encode:
        value = "".join(f"%{ord(c):02X}" if _is_escaped(c) else c for c in value)
    return f"{name}={value}" if rules.hive_style else value


def _is_escaped(character: str) -> bool:
    code = ord(character)
    return code < 0x20 or code == 0x7F or character in "\"#%'*/:=?\\{[]^"


def _made_up(rows: pa.RecordBatch | pa.Table) -> pa.ChunkedArray:
    """The rows' generated keys, "" for those of another form."""
    keys, times = (_chunked(rows.column(n)) for n in ("_hoodie_record_key", "_hoodie_commit_time"))
    rest = pc.utf8_slice_codeunits(keys, 17)
    right = pc.and_(
        pc.equal(pc.utf8_slice_codeunits(keys, 0, 17), times),
        pc.match_substring_regex(rest, r"^_[0-9]+_[0-9]+$"),
    )
    return _chunked(pc.if_else(right, keys, ""))


def text_of(rows: pa.RecordBatch | pa.Table, name: str) -> pa.ChunkedArray:
    """A field's values as the key generator writes them. Raises SchemaError for other types."""
    values = values_at(rows, name)
    t = values.type
    if is_string(t):
        return _chunked(values.cast(pa.string()))
    # Arrow writes decimals as BigDecimal.toString does: with an exponent below 1e-6
    if pat.is_date32(t):
        distinct = _chunked(values).combine_chunks().dictionary_encode()
        return _chunked(_dates(distinct.dictionary).take(distinct.indices))
    if pat.is_signed_integer(t) or pat.is_boolean(t) or is_decimal(t):
        return _chunked(values.cast(pa.string()))
    if pat.is_floating(t) or pat.is_binary(t):
        return _chunked(_each(values))
    if pat.is_timestamp(t):  # microseconds, as the AVRO record type writes it
        return _chunked(values.cast(pa.timestamp("us", t.tz)).cast(pa.int64()).cast(pa.string()))
    raise SchemaError(
        f"column {name!r} of type {t} is not supported by the checks as a key or partition column"
    )


def _dates(values: pa.Array) -> pa.Array:
    """Dates as LocalDate#toString writes them: a year of more than four digits has a sign."""
    made: list[str | None] = []
    for days in values.view(pa.int32()).to_pylist():
        text = None if days is None else str(np.datetime64(days, "D"))
        if text is not None and days > _LAST_OF_FOUR_DIGITS:
            text = f"+{text}"
        elif text is not None and text.startswith("-"):
            # numpy counts the sign as a digit
            year, month, day = text[1:].split("-")
            text = f"-{year:0>4}-{month}-{day}"
        made.append(text)
    return pa.array(made, pa.string())


def _each(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Floats as Java writes them, bytes as hexadecimal digits; value by value."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pat.is_binary(whole.type):
        return pa.array([None if v is None else v.hex() for v in whole.to_pylist()], pa.string())
    batch = pa.record_batch({"v": whole})
    return in_types(batch, pa.schema([("v", pa.string())])).column(0)


def _chunked(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


@dataclass(frozen=True, slots=True)
class _TimeRule:
    """The parsed options. Zones are "" if not stated."""

    input_type: str
    output_format: str
    input_formats: tuple[str, ...]
    input_zone: str
    output_zone: str
    unit: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _TimeRule:
        def option(name: str, default: str = "") -> str:
            return options.get(f"{_PREFIX}{name}", default)

        kind, both = option("timestamp.type"), option("timezone")
        delimiter = option("input.dateformat.list.delimiter.regex", ",")
        return cls(
            kind,
            option("output.dateformat"),
            tuple(part.strip() for part in re.split(delimiter, option("input.dateformat"))),
            both or option("input.timezone"),
            both or option("output.timezone"),
            _UNITS.get(kind, option("timestamp.scalar.time.unit", "SECONDS").upper()),
        )


def time_folders(values: pa.Array | pa.ChunkedArray, options: Mapping[str, str]) -> pa.ChunkedArray:
    """The folder of each value under Hudi's options of the key generator TIMESTAMP.

    Raises SchemaError for a pattern that cannot be judged.
    """
    rule = _TimeRule.of(options)
    made: dict[Any, str] = {}
    found = []
    for value in values.to_pylist():
        if value not in made:
            made[value] = _time_folder(value, rule)
        found.append(made[value])
    return pa.chunked_array([pa.array(found, pa.string())])


def _time_folder(value: Any, rule: _TimeRule) -> str:
    if rule.input_type in ("DATE_STRING", "MIXED"):
        moment = _parsed(value, rule)
    else:
        moment = _EPOCH + timedelta(milliseconds=_ms(value, rule))
        moment = moment.astimezone(_time_zone(rule.output_zone))
    # Python's own fraction of a second has six digits
    pattern, millisecond = _strftime(rule.output_format), f"{moment.microsecond // 1000:03}"
    return moment.strftime(
        re.sub("%.", lambda letter: millisecond if letter[0] == "%f" else letter[0], pattern)
    )


def _ms(value: Any, rule: _TimeRule) -> int:
    if value is None:
        value = 1
    elif isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        value = (moment - _EPOCH) // timedelta(microseconds=1)
    elif isinstance(value, date):
        value = (value - _EPOCH.date()).days
    elif isinstance(value, float | Decimal):
        value = int(value)
    ns = value * _NS[rule.unit]
    return ns // 10**6 if ns >= 0 else -(-ns // 10**6)


def _parsed(value: str | None, rule: _TimeRule) -> datetime:
    zone = _time_zone(rule.input_zone)
    if value is None:
        first = _EPOCH.astimezone(_time_zone(rule.input_zone or rule.output_zone))
        value = first.strftime(_strftime(rule.input_formats[0]))
    for pattern in rule.input_formats:
        try:
            moment = datetime.strptime(value, _strftime(pattern))
        except ValueError:
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        given = rule.output_zone or rule.input_zone
        return moment.astimezone(_time_zone(given)) if given else moment
    raise SchemaError(f"{value!r} matches none of the patterns {', '.join(rule.input_formats)}")


def _strftime(pattern: str) -> str:
    pieces = []
    for quoted, letters, other in re.findall(r"'([^']*)'|((?:[A-Za-z])+)|([^A-Za-z']+)", pattern):
        if letters:
            for run in re.findall(r"((.)\2*)", letters):
                if run[0] not in _LETTERS:
                    raise SchemaError(
                        f"the time pattern {pattern!r} is not supported by the checks"
                    )
                pieces.append(_LETTERS[run[0]])
        else:
            pieces.append((quoted or other).replace("%", "%%"))
    return "".join(pieces)


def _time_zone(name: str) -> tzinfo:
    found = re.fullmatch(r"GMT([+-])(\d{1,2})(?::?(\d\d))?", name)
    if found is None:
        return ZoneInfo(name or "UTC")
    size = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
    return timezone(-size if found[1] == "-" else size)


Change = Callable[[Any], Any]


def in_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, by name; columns missing from the batch are null."""
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        values = batch.column(field.name)
        if storage_type(values.type) == storage_type(field.type):
            columns.append(values.cast(field.type))
            continue
        change = _change(values.type, field.type)
        columns.append(pa.array([change(value) for value in values.to_pylist()], field.type))
    return pa.record_batch(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))


def _change(narrow: pa.DataType, wide: pa.DataType) -> Change:
    change = _change_of_there(narrow, wide)
    return lambda value: None if value is None else change(value)


def _change_of_there(narrow: pa.DataType, wide: pa.DataType) -> Change:
    if pat.is_struct(wide) and pat.is_struct(narrow):
        old = {field.name: field.type for field in narrow}
        fields = {f.name: _change(old[f.name], f.type) for f in wide if f.name in old}
        return lambda value: {
            f.name: fields[f.name](value[f.name]) if f.name in fields else None for f in wide
        }
    if pat.is_list(wide) and pat.is_list(narrow):
        item = _change(narrow.value_type, wide.value_type)
        return lambda value: [item(one) for one in value]
    if pat.is_map(wide) and pat.is_map(narrow):
        item = _change(narrow.item_type, wide.item_type)
        return lambda value: [(key, item(one)) for key, one in value]
    if pat.is_string(wide) and pat.is_binary(narrow):
        return bytes.decode
    if pat.is_binary(wide) and pat.is_string(narrow):
        return str.encode
    if pat.is_string(wide) and pat.is_floating(narrow):
        return lambda value: _java(value, narrow)
    if pat.is_string(wide) and pat.is_integer(narrow):
        return str
    if pat.is_float64(wide) and pat.is_float32(narrow):
        return lambda value: float(str(np.float32(value)))
    if pat.is_float32(wide) and pat.is_integer(narrow):
        return lambda value: float(np.float32(value))
    if pat.is_float64(wide) and pat.is_integer(narrow):
        return float
    return lambda value: value


def _java(value: float, kind: pa.DataType) -> str:
    """The text that Double.toString or Float.toString gives."""
    number = np.float32(value) if pat.is_float32(kind) else np.float64(value)
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(number, unique=True, trim="0")
    digits, _, power = np.format_float_scientific(number, unique=True, trim="0").partition("e")
    return f"{digits}E{int(power)}"
