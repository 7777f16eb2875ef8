"""Parses an Avro schema into a tree of nodes, which is walked for every batch.

`parse` gives each Avro type its Arrow type; `fit` replaces these by the types of a given Arrow schema.

Supported is everything that `schema.arrow_to_avro` writes, and also unions of one type with null in
either order, references to named types, and timestamps in milliseconds. Enums, decimals over bytes,
fixed without a decimal, times and larger unions are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import SchemaError


@dataclass(frozen=True, slots=True)
class Node:
    """One Avro type, and the Arrow type of its values in memory.

    `kind` is Avro's name of the type, or "decimal", the only fixed.
    `null_branch` is the index of null in the union around the type; None without a union. Children are
    an array's item, a map's entry (a record of `key` and `value`), or a record's fields.
    """

    kind: str
    type: pa.DataType
    name: str = ""
    null_branch: int | None = None
    size: int = 0
    """The size of a decimal in bytes."""
    children: tuple[Node, ...] = ()

    @property
    def value_branch(self) -> int:
        """The index of the type itself in the union around it."""
        return 1 - (self.null_branch or 0)

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, self.null_branch is not None)

    def arrow_fields(self) -> list[pa.Field]:
        return [child.field for child in self.children]

    def least_bytes(self) -> int:
        """The fewest bytes that a value takes; this limits how many items a list can claim to have."""
        if self.null_branch is not None:
            return 1
        if self.kind == "record":
            return sum(child.least_bytes() for child in self.children)
        return {"float": 4, "double": 8, "decimal": self.size}.get(self.kind, 1)


def parse(schema: Any) -> Node:
    """The tree of an Avro record, given as JSON text or parsed. Raises SchemaError naming the column."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as exc:
            raise SchemaError(f"an Avro schema is not JSON: {exc}") from exc
    try:
        root = _SchemaParser().node(schema, "", "", "")
    except KeyError as exc:
        raise SchemaError(f"an Avro schema lacks the key {exc.args[0]!r} somewhere") from exc
    except (TypeError, AttributeError, RecursionError) as exc:
        raise SchemaError("an Avro schema has a value of another kind than Avro's") from exc
    if root.kind != "record" or root.null_branch is not None:
        raise SchemaError(f"an Avro schema describes {root.type}, expected a record")
    return root


def fit(root: Node, schema: pa.Schema) -> Node:
    """`root` with the Arrow types of `schema`; both must have the same columns in the same order.

    `schema` may narrow int to int8 and int16, name another zone, and be nullable where `root` is not.
    """
    return _fit(root, pa.struct(list(schema)), "")


def _fit(node: Node, t: pa.DataType, path: str) -> Node:
    if node.kind == "record" and pat.is_struct(t):
        have, want = [c.name for c in node.children], [f.name for f in t]
        if have != want:
            inside = f"column {path!r}" if path else "the Avro record"
            raise SchemaError(f"{inside} has the fields {have}, expected {want}")
        fields = [
            _fit(c, f.type, f"{path}.{c.name}".lstrip("."))
            for c, f in zip(node.children, t, strict=True)
        ]
        return replace(node, children=tuple(fields), type=_struct(fields))
    if node.kind == "array" and pat.is_list(t):
        item = _fit(node.children[0], t.value_type, f"{path}.element")
        return replace(node, children=(item,), type=pa.list_(item.field))
    if node.kind == "map" and pat.is_map(t):
        key, value = node.children[0].children
        value = _fit(value, t.item_type, f"{path}.value")
        return replace(
            node,
            children=(
                replace(node.children[0], children=(key, value), type=_struct((key, value))),
            ),
            type=pa.map_(pa.string(), value.field),
        )
    zoned = pat.is_timestamp(t) and pat.is_timestamp(node.type) and t.unit == node.type.unit
    same_clock = zoned and (t.tz is None) == (node.type.tz is None)
    narrow = node.type == pa.int32() and t in (pa.int8(), pa.int16())
    if not (node.type.equals(t) or same_clock or narrow):
        raise SchemaError(f"column {path!r} is {node.type} in Avro, expected {t}")
    return replace(node, type=t)


def _struct(fields: Any) -> pa.DataType:
    return pa.struct([child.field for child in fields])


class _SchemaParser:
    def __init__(self) -> None:
        self.named: dict[str, Mapping[str, Any]] = {}
        self.open: list[str] = []

    def node(self, schema: Any, name: str, namespace: str, path: str) -> Node:
        if isinstance(schema, list):
            branches = [b for b in schema if b != "null"]
            if len(branches) != 1 or len(schema) > 2:
                raise SchemaError(
                    f"column {path!r} is the union {schema}, expected one type and null"
                )
            inner = self.node(branches[0], name, namespace, path)
            if inner.null_branch is not None:
                raise SchemaError(f"column {path!r} is a union inside a union")
            return inner if len(schema) == 1 else replace(inner, null_branch=schema.index("null"))
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return Node(schema, PRIMITIVES[schema], name)
            full = schema if "." in schema else f"{namespace}.{schema}".lstrip(".")
            if full not in self.named:
                raise SchemaError(f"column {path!r} has the unknown Avro type {schema!r}")
            return self.node(self.named[full], name, namespace, path)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise SchemaError(f"column {path!r} has no Avro type: {schema!r}")
        kind = schema["type"]
        build: Callable[..., Node] | None = _COMPLEX.get(kind) if isinstance(kind, str) else None
        if build is not None:
            return build(self, schema, name, namespace, path)
        if not isinstance(kind, str):
            return self.node(kind, name, namespace, path)
        inner = self.node(kind, name, namespace, path)
        logical = schema.get("logicalType")
        if logical is None:
            return inner
        if (kind, logical) not in _LOGICAL:
            raise SchemaError(f"column {path!r} is the unsupported Avro type {kind} as {logical}")
        return replace(inner, type=_LOGICAL[kind, logical])

    def _define(self, schema: Mapping[str, Any], namespace: str, path: str) -> str:
        """Remember a named type and return its full name."""
        name = schema.get("name")
        if not isinstance(name, str):
            raise SchemaError(f"column {path!r} has an Avro {schema['type']} without a name")
        space = schema.get("namespace", namespace)
        full = name if "." in name else f"{space}.{name}".lstrip(".")
        self.named[full] = schema
        return full

    def record(self, schema: Mapping[str, Any], name: str, namespace: str, path: str) -> Node:
        full = self._define(schema, namespace, path)
        if full in self.open:
            raise SchemaError(f"column {path!r} holds the Avro record {full} inside itself")
        self.open.append(full)
        space = full.rpartition(".")[0]
        fields = tuple(
            self.node(f["type"], f["name"], space, f"{path}.{f['name']}".lstrip("."))
            for f in schema["fields"]
        )
        self.open.pop()
        if not fields and path:
            raise SchemaError(f"column {path!r} is an Avro record without fields")
        return Node("record", _struct(fields), name, children=fields)

    def fixed(self, schema: Mapping[str, Any], name: str, namespace: str, path: str) -> Node:
        self._define(schema, namespace, path)
        size, precision, scale = (schema.get(k, 0) for k in ("size", "precision", "scale"))
        if schema.get("logicalType") != "decimal":
            raise SchemaError(
                f"column {path!r} is the unsupported Avro type fixed without a decimal"
            )
        if not (1 <= precision <= 38 and 0 <= scale <= precision and 1 <= size <= 16):
            raise SchemaError(
                f"column {path!r} is a decimal({precision}, {scale}) in {size} bytes, "
                "expected at most 38 digits in at most 16 bytes"
            )
        return Node("decimal", pa.decimal128(precision, scale), name, size=size)

    def array(self, schema: Mapping[str, Any], name: str, namespace: str, path: str) -> Node:
        item = self.node(schema["items"], "element", namespace, f"{path}.element")
        return Node("array", pa.list_(item.field), name, children=(item,))

    def map(self, schema: Mapping[str, Any], name: str, namespace: str, path: str) -> Node:
        key = Node("string", pa.string(), "key")
        value = self.node(schema["values"], "value", namespace, f"{path}.value")
        entry = Node("record", _struct((key, value)), children=(key, value))
        return Node("map", pa.map_(pa.string(), value.field), name, children=(entry,))


_COMPLEX: dict[str, Callable[..., Node]] = {
    "record": _SchemaParser.record,
    "fixed": _SchemaParser.fixed,
    "array": _SchemaParser.array,
    "map": _SchemaParser.map,
}

PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
"""The Arrow type of each primitive type of Avro."""

_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
}
