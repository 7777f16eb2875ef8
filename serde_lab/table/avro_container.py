"""Avro object-container files with one record, as Hudi keeps commit metadata and plans.

Owns the container's form (null codec, schema in the header); must not know any of the schemas.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, cast

import fastavro

from serde_lab.errors import TableError


def write_single(schema: Mapping[str, Any], record: Mapping[str, Any]) -> bytes:
    """A container that holds `record`, without compression: what Hudi's readers take."""
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(dict(schema)), [record], codec="null")
    return out.getvalue()


def read_single(content: bytes, where: str) -> dict[str, Any]:
    """The one record of a container. Raises TableError, naming `where`, if it is none."""
    try:
        records = list(fastavro.reader(io.BytesIO(content)))
    except (ValueError, EOFError, KeyError, IndexError, TypeError) as exc:
        raise TableError(f"{where}: is no readable Avro file: {exc or type(exc).__name__}") from exc
    if len(records) != 1:
        raise TableError(f"{where}: holds {len(records)} Avro records; one was expected")
    return cast(dict[str, Any], records[0])
