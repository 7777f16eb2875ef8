"""The text of a record key that consistent hashing hashes: the values of its index fields, concatenated.

A key that lacks `,` or `:` is taken whole; any other consists of `field:value` pairs. Source:
KeyGenUtils#extractRecordKeysByFields, and ConsistentBucketIdentifier, which joins the values with nothing
between them (a null as `null`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.table.index.bucket_index import hash_values


def hash_texts(
    record_keys: pa.Array | pa.ChunkedArray, key_fields: Sequence[str], hash_fields: Sequence[str]
) -> pa.Array:
    """The text of each record key. `hash_fields` are those of `key_fields` to use, all if empty.

    Keys whose values hold `,` or `:` themselves are split one by one.
    """
    keys = record_keys
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    keys = keys.cast(pa.string())
    pairs = pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":"))
    if not pc.any(pairs).as_py():
        return keys
    names = [name for name in key_fields if name in (hash_fields or key_fields)]
    parts = [
        f"{re.escape(name)}:(?P<v{names.index(name)}>[^:,]*)"
        if name in names
        else f"{re.escape(name)}:[^:,]*"
        for name in key_fields
    ]
    taken = pc.extract_regex(keys, f"^{','.join(parts)}$")
    values = [_plain(pc.struct_field(taken, [f"v{number}"])) for number in range(len(names))]
    texts = pc.binary_join_element_wise(*values, "") if values else keys
    texts = pc.if_else(pairs, texts, keys)
    missed = np.flatnonzero(
        pc.and_(pairs, pc.invert(taken.is_valid())).to_numpy(zero_copy_only=False)
    )
    if not len(missed):
        return texts
    one_by_one = [
        "".join("null" if v is None else v for v in hash_values(keys[row].as_py(), hash_fields))
        for row in missed.tolist()
    ]
    mask = np.zeros(len(keys), bool)
    mask[missed] = True
    return pc.replace_with_mask(texts, pa.array(mask), pa.array(one_by_one, pa.string()))


def _plain(values: pa.Array) -> pa.Array:
    """Replace placeholders by what they stand for."""
    values = pc.if_else(pc.equal(values, "__null__"), "null", values)
    return pc.if_else(pc.equal(values, "__empty__"), "", values)
