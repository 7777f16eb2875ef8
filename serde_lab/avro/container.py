"""Reads and writes Avro object-container files with one record, as Hudi stores commit metadata and plans.

Hudi's schemas are in `hudi/`. Containers have the form that Hudi's own writers give them: no codec, and
the schema, word for word, as the only metadata. A library's writer would normalise the schema and draw
a random sync marker, so that equal commits would have different bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, cast

import fastavro

from serde_lab.errors import TableError

_MAGIC = b"Obj\x01"


def hudi_schema(name: str) -> dict[str, Any]:
    """Hudi's record schema of this name, as its writers use it: `hudi/<name>.avsc`."""
    text = (files("serde_lab.avro") / "hudi" / f"{name}.avsc").read_text(encoding="utf-8")
    return cast(dict[str, Any], json.loads(text))


def write_single(schema: Mapping[str, Any], record: Mapping[str, Any]) -> bytes:
    """A container that holds `record`. Source: Avro 1.11 specification, object container files."""
    text = json.dumps(schema, separators=(",", ":")).encode()
    sync = hashlib.md5(text, usedforsecurity=False).digest()
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(dict(schema)), record)
    body = datum.getvalue()
    return b"".join(
        (
            _MAGIC,
            long_bytes(1) + _bytes(b"avro.schema") + _bytes(text) + long_bytes(0),
            sync,
            long_bytes(1) + _bytes(body),  # the number of records, then the block's size and bytes
            sync,
        )
    )


def read_single(content: bytes, where: str) -> dict[str, Any]:
    """The record of a one-record container. Raises TableError naming `where` if `content` is not one."""
    try:
        records = list(fastavro.reader(io.BytesIO(content)))
    except (ValueError, EOFError, KeyError, IndexError, TypeError) as exc:
        raise TableError(
            f"{where}: is not a readable Avro file: {exc or type(exc).__name__}"
        ) from exc
    if len(records) != 1:
        raise TableError(f"{where}: holds {len(records)} Avro records; one was expected")
    return cast(dict[str, Any], records[0])


def _bytes(data: bytes) -> bytes:
    return long_bytes(len(data)) + data


def long_bytes(number: int) -> bytes:
    """A non-negative number as Avro's zigzag varint."""
    number <<= 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
