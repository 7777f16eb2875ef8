"""Computes record keys and partition paths as text from the data columns, to check a writer.

Hudi's encoding is implemented here independently of `serde_lab.records.keys`, which the writer uses: two
implementations find more errors than one.

Source: what Apache Hudi 1.2.0 wrote with its SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP and CUSTOM key
generators (`tests/peers/test_keys_of_hudi.py` and `test_key_generators_of_hudi.py` verify it).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.errors import SchemaError
from serde_lab.records.schema import values_at
from serde_lab.records.types import is_decimal, is_string
from serde_lab.verify.evolution import in_types
from serde_lab.verify.rules import TableRules
from serde_lab.verify.time_folders import folders

_LAST_OF_FOUR_DIGITS = 2_932_896  # 9999-12-31
NO_PARTITION_VALUE = "__HIVE_DEFAULT_PARTITION__"


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
        texts = folders(values_at(rows, name), time) if time else text_of(rows, name)
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
    raise SchemaError(f"column {name!r} of type {t} cannot be judged as a key or partition column")


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
