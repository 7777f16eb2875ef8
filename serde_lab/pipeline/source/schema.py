"""Decides the record schema of a write, and checks schema and keys against the table before it is written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.avro.schema import arrow_to_avro
from serde_lab.errors import DataError, SchemaError, TableError
from serde_lab.pipeline.options.write import WriteOptions
from serde_lab.records.conversion import evolved, is_wider, left_out
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.operation import Operation
from serde_lab.records.schema import (
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    RecordSchema,
    check_supported,
    child_fields,
    find_field,
    plain_type,
    storage_schema,
    storage_type,
    type_at,
)
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import data_schema
from serde_lab.table.files.file_system_view import FileSlice
from serde_lab.table.files.log_records import partial_columns_and_deletes
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.table import HoodieTable

_KEY_FORM = "hoodie.table.complex.keygen.encoding"
_MADE_AS = "hoodie.table.initial.version"
_SAMPLED = 2
"""So many of the oldest and of the newest file slices show which keys a table has."""


def record_schema(source: pa.Schema, options: WriteOptions) -> RecordSchema:
    """The schema of a batch's records, in storage types. Raises SchemaError naming the column."""
    if options.operation is Operation.UPSERT_PREPPED:
        if FILE_NAME not in source.names:
            raise SchemaError(
                f"column {FILE_NAME!r} is not in the data: upsert_prepped needs it, as a read of the"
                " table returns it"
            )
        source = data_schema(source)
    check_supported(source)
    _check_case(pa.struct(source), "")
    # refuse names that Avro does not allow, at any depth, before the table is created
    avro_schema(source, options.table.name)
    deletes = options.operation is Operation.DELETE
    roles = _identity(options.table)
    if not deletes:
        roles["ordering"] = options.table.ordering_fields
    for role, names in roles.items():
        for name in names:
            near = _siblings(source, name)
            if find_field(source, name) is None:
                raise SchemaError(
                    f"{role} column {name!r} is not in the data, whose columns are {', '.join(near)}"
                )
    if not deletes:
        options.table.merge_rules.markers.check(source)
    return _record_schema(source, options.table, ordered=not deletes)


def stored_schema(stored: pa.Schema, source: RecordSchema, table: HoodieTable) -> RecordSchema:
    """The schema of the table's own records, for deletes, which bring no rows.

    Raises SchemaError if key or partition columns have another type than in the table.
    """
    found = _own_schema(stored, table)
    for names in _identity(table.config).values():
        for name in names:
            _check_type(name, source.data, found.data)
    return found


def table_schema(table: HoodieTable) -> RecordSchema:
    """The schema of the table's own records, for a write without rows. Raises TableError if it has none."""
    stored = table.data_schema()
    if stored is None:
        raise TableError(f"table {table.config.name} has no rows yet")
    return _own_schema(stored, table)


def _own_schema(stored: pa.Schema, table: HoodieTable) -> RecordSchema:
    """The schema of the table's records. Raises TableError for columns whose type a write would change."""
    for field in stored:
        if storage_type(field.type) != plain_type(field.type):
            raise TableError(
                f"column {field.name!r} of table {table.config.name} is of type {field.type}, and the lab"
                f" writes {storage_type(field.type)}: the table can only be read"
            )
    return _record_schema(stored, table.config, ordered=True)


def evolved_schema(table: HoodieTable, batch: RecordSchema, options: WriteOptions) -> RecordSchema:
    """The table's schema after `batch` is written: its own, widened where necessary.

    Raises SchemaError naming the column if the two cannot be reconciled.
    """
    stored = table.data_schema()
    if stored is None:
        return batch
    stored = _own_schema(stored, table).data
    if stored.equals(batch.data):
        return batch
    given = batch.data
    if options.partial_updates:
        # columns that the records leave out stay unchanged; this does not hold for fields inside their
        # columns
        given = pa.schema([*given, *(field for field in stored if field.name not in given.names)])
    if options.reconcile:
        _check_reconcilable(stored, given)
    data = evolved(stored, given, fill=options.fill_missing or options.reconcile)
    _check_case(pa.struct(data), "")
    for name in table.config.ordering_fields:
        before, after = find_field(stored, name), type_at(data, name)
        if before is not None and pa.types.is_string(after) != pa.types.is_string(before.type):
            raise SchemaError(
                f"ordering column {name!r} is of type {type_at(batch.data, name)}, and the table has"
                f" {before.type}: as text its values would sort differently"
            )
    _check_texts(table.config, stored, batch.data)
    _check_logs(table, stored, data)
    return replace(batch, data=data)


def partial_records(
    table_schema: RecordSchema, given: Collection[str], table: TableConfig
) -> RecordSchema | None:
    """The schema of records with the columns `given`; None if no table column is missing.

    Missing columns keep their stored values (Hudi's KEEP_VALUES). On merge-on-read such records become log
    blocks of their columns (`IS_PARTIAL` in the header), and readers take the other values from older rows.
    Apache Hudi 1.2.0 does so in snapshots and compactions; an incremental query, which reads changes alone,
    returns arbitrary memory for the missing columns. Sources: HoodieAppendHandle,
    PartialUpdateBufferedRecordMerger, SparkRecordMergingUtils#mergePartialRecords.

    Raises SchemaError for a table with a column that marks deletes: Apache Hudi looks for it in partial
    rows at its position in whole rows, and takes other rows for deletes.
    """
    columns = table_schema.data
    if columns.names == [name for name in columns.names if name in given]:
        return None
    for name in table.merge_rules.markers.used_in(columns.names):
        raise SchemaError(
            f"column {name!r} of the table marks deletes, which Apache Hudi cannot distinguish from rows that"
            " leave columns out",
            hint="write whole rows, or hoodie.write.set.null.for.missing.columns=true",
        )
    data = pa.schema([field for field in columns if field.name in given])
    return replace(table_schema, data=data)


def _check_case(struct: pa.StructType, place: str) -> None:
    """Refuse names that differ only in case: by default, Spark cannot distinguish them."""
    seen: dict[str, str] = {}
    for field in struct:
        path = f"{place}{field.name}"
        other = seen.setdefault(field.name.lower(), path)
        if other != path:
            raise SchemaError(
                f"columns {other!r} and {path!r} differ in case only, and Spark cannot distinguish them"
            )
        _check_case_within(field.type, f"{path}.")


def _check_case_within(kind: pa.DataType, place: str) -> None:
    if pa.types.is_struct(kind):
        _check_case(kind, place)
        return
    for field in child_fields(kind):
        _check_case_within(field.type, f"{place}{field.name}.")


def _check_logs(table: HoodieTable, stored: pa.Schema, data: pa.Schema) -> None:
    """Refuse columns that other readers would misread in the log blocks that are there."""
    for name, why in misread_in_logs(table, stored, data).items():
        becomes = (
            f"is of type {stored.field(name).type} and would become {data.field(name).type}"
            if name in stored.names
            else "would mark deletes"
        )
        raise SchemaError(
            f"column {name!r} of the table {becomes}, but {why}", hint="compact the table first"
        )


def misread_in_logs(
    table: HoodieTable, before: pa.Schema, now: pa.Schema, own_instant: str | None = None
) -> dict[str, str]:
    """The columns that other readers misread in the table's logs once its columns are `now`, no longer
    `before`, and why. Blocks of the pending `own_instant` count too.

    Apache Hudi 1.2.0 reads the bytes of a column of another type in partial rows as the new type, and
    hudi-rs 0.5.0 cannot read them. A column that marks deletes Hudi looks for at its position in whole rows.
    The ordering values of deletes stay of their old type: Hudi cannot compare them, and hudi-rs errs
    (tests/readers.toml).
    """
    changed = [f.name for f in before if f.name in now.names and now.field(f.name).type != f.type]
    marking = set(table.config.merge_rules.markers.used_in(now.names)) - set(before.names)
    if not (changed or marking) or not table.config.is_mor:
        return {}
    view = table.view(own_instant=own_instant)
    logs = [log for slice_ in view.latest_file_slices() for log in slice_.log_files]
    held, deletes = partial_columns_and_deletes(table.storage, logs, view.visibility)
    found = {
        name: "logs hold partial updates of it, which other readers would not convert"
        for name in changed
        if name in held
    }
    if held:
        why = "logs hold partial updates, in which Hudi would misread it"
        found |= dict.fromkeys(sorted(marking), why)
    if deletes:
        why = "logs hold deletes with values of it, which other readers would not convert"
        ordering = [name for name in changed if name in table.config.merge_ordering]
        found |= dict.fromkeys(ordering, why)
    return found


def _check_reconcilable(stored: pa.Schema, batch: pa.Schema) -> None:
    """Source: what Apache Hudi 1.2.0 refuses (tests/peers/test_evolved_tables.py)."""
    lacking, added = left_out(stored, batch), left_out(batch, stored)
    if lacking and added:
        raise SchemaError(
            f"column {lacking[0]!r} of the table is not in the data, and {added[0]!r} of the data is not in"
            " the table: hoodie.datasource.write.reconcile.schema=true accepts only one of the two",
            hint="hoodie.write.set.null.for.missing.columns=true instead accepts both",
        )


def _check_texts(table: TableConfig, stored: pa.Schema, batch: pa.Schema) -> None:
    """Refuse type changes that change the text of stored keys, which Apache Hudi would duplicate, and of
    marks of deletes, which would become rows.
    """
    marks = table.merge_rules.markers.used_in(batch.names)
    for role, names in {**_identity(table), "delete marker": tuple(marks)}.items():
        for name in names:
            before, after = find_field(stored, name), type_at(batch, name)
            if before is None or not pa.types.is_integer(before.type):
                continue
            if role == "partition" and name in table.time_fields:
                continue
            if pa.types.is_floating(after):
                raise SchemaError(
                    f"{role} column {name!r} is of type {after}, and the table has {before.type}: the text of"
                    " 1 would become 1.0",
                    hint="cast it",
                )


_TAKES_AWAY = (Operation.DELETE, Operation.DELETE_PARTITION)
"""The operations that bring no rows: their columns are the table's."""


def check_unchanged(table: HoodieTable, schema: RecordSchema, options: WriteOptions) -> None:
    """Refuse a write if another writer has changed the table's schema since this one was decided."""
    if options.operation in _TAKES_AWAY:
        stored = table.data_schema()
        if stored is None:
            return
        now = _record_schema(stored, table.config, ordered=True).data
    else:
        settled = replace(options, fill_missing=True, reconcile=False)
        now = evolved_schema(table, schema, settled).data
    if now.equals(schema.data):
        return
    names = dict.fromkeys([*schema.data.names, *now.names])
    both = set(schema.data.names) & set(now.names)
    changed = [n for n in names if n not in both or not now.field(n).equals(schema.data.field(n))]
    # the columns are the same, in another order
    listed = ", ".join(map(repr, changed)) or "all of them, by order"
    raise SchemaError(
        f"columns of table {table.config.name} were changed by another writer meanwhile: {listed}",
        hint="write again",
    )


def check_stored_keys(table: HoodieTable, keys: KeyGenerator, options: WriteOptions) -> None:
    """Raise TableError if stored rows have another record key or partition path than `keys` makes for them: a
    write would not find them.

    Looks only where writers of Apache Hudi are known to differ: some left out the name of a single field
    under COMPLEX (HUDI-7001); where Hudi writes Spark's rows, timestamps and binary values get another text
    than where it writes Avro records; and a table may not state that its days are folders such as 2024/01/31.
    The first rows of a few file slices are compared.
    """
    config, data = table.config, keys.schema.data
    # from version 9 on every writer names the field, unless the table states another form; the lab's do not
    named = config.index_type and config.extra.get(_MADE_AS) == "9"
    lone = len(config.record_key_fields) == 1 and not config.bare_keys and not named
    if lone and config.extra.get(_KEY_FORM) == "VALUE_ONLY":
        raise TableError(
            f"table {config.name}: {_KEY_FORM} is VALUE_ONLY, so a record key lacks the name of its field"
            f" {config.record_key_fields[0]!r}, as Apache Hudi 0.14.1 to 1.0.2 wrote it: its row would not be"
            " found"
        )
    in_path = any(_has_two_texts(data, name) for name in keys.folders_by_text)
    sampled = lone or in_path or any(_has_two_texts(data, name) for name in keys.schema.record_key)
    # a folder of too many levels is the other sign of another path
    levels = len(config.partition_fields)
    by_hudi = levels > 0 and not (config.index_type or config.is_keyless)
    makers = {RECORD_KEY: keys.record_keys} if sampled and not config.is_keyless else {}
    # under a global index a row may lie in another partition than its columns say
    if (in_path or by_hudi) and not options.table.index_is_global:
        makers[PARTITION_PATH] = keys.partition_paths
    # a table that nothing was written to has no columns
    if not makers or table.data_schema() is None:
        return
    plan = plan_snapshot(table, columns=[*makers, *keys.identity.names])
    deep = [one for one in plan.slices if one.partition_path.count("/") >= levels > 0]
    for slice_ in [*(_oldest_and_newest(plan.slices) if sampled else ()), *deep[-1:]]:
        where = table.storage.describe(slice_.paths[0])
        for rows in islice(plan.batches(slice_), 1):
            for column, make in makers.items():
                # no write looks for a value that it refuses, such as a folder's name with a slash
                with suppress(DataError):
                    _check_same(rows.column(column), make(rows), where)


def _has_two_texts(data: pa.Schema, name: str) -> bool:
    kind = type_at(data, name)
    return pa.types.is_timestamp(kind) or pa.types.is_binary(kind)


def _oldest_and_newest(slices: Sequence[FileSlice]) -> list[FileSlice]:
    """A few slices, by the time of their base files: releases and settings change with time."""
    by_time = sorted(slices, key=lambda slice_: (slice_.base_instant, slice_.file_id))
    return [*by_time[:_SAMPLED], *by_time[_SAMPLED:][-_SAMPLED:]]


def _check_same(stored: pa.Array, made: pa.Array, where: str) -> None:
    other = pc.indices_nonzero(pc.not_equal(stored, made))
    if len(other):
        row = other[0].as_py()
        raise TableError(
            f"{where}: holds a row as {stored[row].as_py()!r}, and a write would look for it as"
            f" {made[row].as_py()!r}: it would not be found",
            hint="some writers of Apache Hudi give such a key another text (docs/writes.md says which); write"
            " the table anew",
        )


def _siblings(schema: pa.Schema, path: str) -> list[str]:
    """The fields of the deepest existing struct on the path, each by its full path."""
    above, _, _ = path.rpartition(".")
    struct = find_field(schema, above) if above else None
    if above and (struct is None or not pa.types.is_struct(struct.type)):
        return _siblings(schema, above)
    return schema.names if struct is None else [f"{above}.{field.name}" for field in struct.type]


def avro_schema(data: pa.Schema, table_name: str) -> dict[str, Any]:
    """The schema that a commit stores: data columns only, with Hudi's names."""
    return arrow_to_avro(data, f"{table_name}_record", f"hoodie.{table_name}")


def _identity(table: TableConfig) -> dict[str, tuple[str, ...]]:
    """The columns that identify a record, by role."""
    return {"record key": table.record_key_fields, "partition": table.partition_fields}


def _record_schema(data: pa.Schema, table: TableConfig, ordered: bool) -> RecordSchema:
    # a later batch may hold nulls even if this one does not: every column is nullable
    columns = [field.with_nullable(True) for field in storage_schema(data)]
    return RecordSchema(
        pa.schema(columns),
        table.record_key_fields,
        table.partition_fields,
        table.ordering_fields if ordered else (),
    )


def _check_type(name: str, batch: pa.Schema, stored: pa.Schema) -> None:
    ours, theirs = find_field(batch, name), find_field(stored, name)
    assert ours is not None
    assert theirs is not None
    if is_wider(theirs.type, ours.type):
        return
    if _value_type(ours) != _value_type(theirs):
        raise SchemaError(
            f"column {name!r} is of type {ours.type}, and the table has {theirs.type}"
        )


def _value_type(field: pa.Field) -> Any:
    """The Avro type of a column, without the null of an optional one."""
    kind = avro_schema(pa.schema([field]), "t")["fields"][0]["type"]
    return kind[1] if isinstance(kind, list) else kind
