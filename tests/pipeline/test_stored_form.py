"""What a source hands over becomes what the table stores, whichever form it came in."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import DataError
from serde_lab.pipeline.exchange.routing import buckets_of, buckets_of_batch
from serde_lab.pipeline.stages import stored_form
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.table.config import TableConfig

STORED = pa.schema([("price", pa.decimal128(15, 2)), ("id", pa.int64())])


def test_unscaled_longs_and_decimals_give_the_same_rows() -> None:
    prices = [Decimal("-0.01"), None, Decimal("1234567890123.45"), Decimal("7.00")]
    as_decimals = pa.record_batch(
        [pa.array(prices, STORED.types[0]), pa.array([1, 2, 3, 4])], STORED
    )
    longs = pa.array([-1, None, 123456789012345, 700])
    as_longs = pa.record_batch(
        [pa.array([4, 3, 2, 1]), longs, pa.array([1, 2, 3, 4])], ["x", *STORED.names]
    )
    assert stored_form(as_longs, STORED).equals(as_decimals)


def test_decimal_keys_are_hashed_as_decimals_and_integers_by_their_digits() -> None:
    ids = np.array([0, 1, 12, -7, 1_000_000, 2**62])
    prices = pa.array([Decimal(int(i)) / 4 for i in ids], pa.decimal128(38, 2))
    data = pa.record_batch([prices, pa.array(ids)], ["price", "id"])
    schema = RecordSchema(data.schema, ("price", "id"), (), ())
    for keys, hashed in (
        (("price", "id"), ("id",)),
        (("price", "id"), ("price", "id")),
        (("id",), ("id",)),
    ):
        table = TableConfig(name="t", record_key_fields=keys, bucket_count=64, bucket_fields=hashed)
        of = RecordSchema(schema.data, keys, (), ())
        text = KeyGenerator(of).record_keys(data)
        assert buckets_of_batch(text, data, table).tolist() == buckets_of(text, table).tolist()


@pytest.mark.parametrize("at", [0, 3, 7, 8, 15, 16, 18])
@pytest.mark.parametrize("wrong", [b"\x80", b"\xff"])
def test_one_wrong_byte_of_text_is_found_wherever_it_is(at: int, wrong: bytes) -> None:
    """Text is checked eight bytes at a time, from wherever the slice begins."""
    schema = pa.schema([("text", pa.string())])
    texts = [b"before", b"nineteen characters", b"after"]
    damaged = [texts[0], texts[1][:at] + wrong + texts[1][at + 1 :], texts[2]]
    for given, is_right in ((texts, True), (damaged, False)):
        binary = pa.array(given, pa.binary())
        column = pa.Array.from_buffers(pa.string(), 3, binary.buffers())
        for part in (column, column.slice(1), column.slice(1, 1)):
            batch = pa.RecordBatch.from_arrays([part], schema=schema)
            if is_right:
                assert stored_form(batch, schema).equals(batch)
            else:
                with pytest.raises(DataError, match="'text' holds text that is not UTF-8"):
                    stored_form(batch, schema)
        # what is outside of the slice does not count
        outside = pa.RecordBatch.from_arrays([column.slice(2)], schema=schema)
        assert stored_form(outside, schema).equals(outside)


def test_text_beyond_ascii_passes() -> None:
    schema = pa.schema([("text", pa.string())])
    batch = pa.RecordBatch.from_arrays([pa.array(["plain", "größer", None, "😀"])], schema=schema)
    assert stored_form(batch, schema).equals(batch)
