"""Chooses a topology by operation, index and option, and refuses combinations that do not work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from serde_lab.errors import OptionError
from serde_lab.pipeline.options.reader import OptionReader
from serde_lab.records.operation import Operation
from serde_lab.table.config import TableConfig
from serde_lab.table.files.file_sizing import SIZING_OPTIONS, FileSizing
from serde_lab.table.index.index_kind import CONSISTENT_HASHING

SortMode = Literal["NONE", "GLOBAL_SORT", "PARTITION_SORT"]

TOPOLOGY = "serde_lab.topology"
ASSIGNER_STATE = "serde_lab.assigner_state"
SORT_MODE = "hoodie.bulkinsert.sort.mode"
PARTITIONS_TO_DELETE = "hoodie.datasource.write.partitions.to.delete"
_UPDATES_PATH = {
    "GLOBAL_BLOOM": "hoodie.bloom.index.update.partition.path",
    "GLOBAL_SIMPLE": "hoodie.simple.index.update.partition.path",
}
BATCH_MB = "write.batch.size"
BUFFER_MB = "write.task.max.size"

MEANING: Mapping[str, str] = {
    ASSIGNER_STATE: (
        "true: with topology bloom, assigners keep what they know of stored keys for the next write (false)"
    ),
    TOPOLOGY: (
        "the chain of stages: bucket, consistent, state, bloom, legacy, step1, step2, step3, compatible,"
        " bulk or append; the default depends on index and operation"
    ),
    SORT_MODE: "order in which bulk_insert writes rows: NONE, GLOBAL_SORT or PARTITION_SORT (NONE)",
    PARTITIONS_TO_DELETE: (
        "for delete_partition: partition paths, separated by commas; * stands for any text, and blanks"
        " belong to the path"
    ),
    BATCH_MB: "for step3: a file group is written when it has this many megabytes in the buffer (256)",
    BUFFER_MB: "for step3: megabytes in a writing task's whole buffer (1024)",
    **dict.fromkeys(SIZING_OPTIONS, "sizes of base files, as in Hudi and with its defaults"),
    **dict.fromkeys(
        _UPDATES_PATH.values(),
        "false: an updated record stays in its partition even if its partition columns change (true)",
    ),
}

BY_ASSIGNER = ("state", "bloom", "legacy", "step1", "step2", "step3", "compatible")
"""Topologies that look up records and assign file groups."""
WITHOUT_RECORDS = {"bulk": Operation.BULK_INSERT, "append": Operation.INSERT}
"""Topologies that make no records, with the operation of each."""
NAMES = ("bucket", "consistent", *BY_ASSIGNER, *WITHOUT_RECORDS)

# indexes whose keys are all in base files and their footers
_IN_FOOTERS = ("BLOOM", "GLOBAL_BLOOM", "SIMPLE", "GLOBAL_SIMPLE")


@dataclass(frozen=True, slots=True)
class MiniBatches:
    """How many bytes of frames a writing task buffers: for one file group, and for all together."""

    bucket_bytes: int
    buffer_bytes: int


def topology_name(reader: OptionReader, operation: Operation, table: TableConfig) -> str:
    """The topology asked for, or the default one. Raises OptionError if it does not fit."""
    asked = reader.choice(TOPOLOGY, NAMES, lower=True)
    name = asked or default_topology(operation, table)
    check_topology(name, operation, table)
    return as_written(name, operation, sort_mode(reader, name))


def as_written(name: str, operation: Operation, sorts: SortMode = "NONE") -> str:
    """The topology that runs, as `topologies.py` names it. It is shorter than the chosen one if file
    groups are known already or nothing is written.
    """
    if operation is Operation.UPSERT_PREPPED:
        return "prepped"
    if operation is Operation.DELETE_PARTITION:
        return "nothing"
    return name if sorts == "NONE" else f"{name}_{sorts.lower()}"


def default_topology(operation: Operation, table: TableConfig) -> str:
    if table.bucket_engine == CONSISTENT_HASHING:
        return "consistent"
    if table.index_type in ("", "BUCKET"):
        return "bucket"
    if operation is Operation.BULK_INSERT:
        return "bulk"
    return "bloom" if table.index_type in ("BLOOM", "GLOBAL_BLOOM") else "state"


def check_topology(name: str, operation: Operation, table: TableConfig) -> None:
    """Raises OptionError if the topology does not fit the operation or the table."""
    bucketed = table.index_type in ("", "BUCKET")
    if (name == "consistent") != (table.bucket_engine == CONSISTENT_HASHING):
        raise OptionError(
            f"{TOPOLOGY} is {name}, but the bucket engine of the table {table.name} is"
            f" {table.bucket_engine}; consistent and {CONSISTENT_HASHING} need each other"
        )
    if name == "consistent" and (operation is Operation.BULK_INSERT or operation.replaces):
        raise OptionError(
            f"hoodie.datasource.write.operation is {operation}, but consistent hashing fixes the file"
            f" groups of the table {table.name}",
            hint="use upsert, insert or delete",
        )
    if bucketed and name in BY_ASSIGNER:
        raise OptionError(
            f"{TOPOLOGY} is {name}, which assigns file groups, but in the table {table.name} the bucket of"
            " the key determines them",
            hint="create the table with hoodie.index.type=BLOOM, SIMPLE or FLINK_STATE",
        )
    if name == "bucket" and not bucketed:
        raise OptionError(
            f"{TOPOLOGY} is bucket, but the table {table.name} has the index {table.index_type}"
        )
    wanted = WITHOUT_RECORDS.get(name)
    if wanted is not None and operation is not wanted:
        raise OptionError(
            f"{TOPOLOGY} is {name}, which only does {wanted}, but the operation is {operation}"
        )
    if wanted is not None and bucketed and not table.is_keyless:
        raise OptionError(
            f"{TOPOLOGY} is {name}, which creates new file groups, but the table {table.name} has one file"
            " group for each bucket"
        )
    if operation is Operation.BULK_INSERT and name in BY_ASSIGNER:
        raise OptionError(
            f"{TOPOLOGY} is {name}, but a bulk_insert does not assign file groups",
            hint=f"{TOPOLOGY}=bulk",
        )
    if name == "bloom" and table.index_type not in _IN_FOOTERS:
        raise OptionError(
            f"{TOPOLOGY} is bloom, but with the index {table.index_type} of the table {table.name} keys"
            " may be in log files, which have no Bloom filter"
        )
    if as_written(name, operation) in ("prepped", "nothing"):
        # these do not look up keys
        return
    if name == "bloom" and table.index_is_global and table.is_mor and table.partition_fields:
        raise OptionError(
            f"{TOPOLOGY} is bloom, but in the table {table.name} a record may leave its partition by a"
            " delete in a log file, and the base file's Bloom filter still contains its key",
            hint=f"{TOPOLOGY}=state",
        )
    if name in ("legacy", "step1") and table.index_is_global and table.partition_fields:
        raise OptionError(
            f"{TOPOLOGY} is {name}, where one task writes a whole partition, but with the index"
            f" {table.index_type} a record may move to another partition"
        )


def updates_partition_path(reader: OptionReader, table: TableConfig) -> bool:
    """Whether a record moves to another partition when its values say so. Raises OptionError if the
    option belongs to another index.
    """
    for index, name in _UPDATES_PATH.items():
        if reader.given(name) and table.index_type != index:
            raise OptionError(
                f"{name} is for the index {index}, but the table {table.name} has"
                f" {table.index_type or 'none'}"
            )
    return reader.flag(_UPDATES_PATH.get(table.index_type, "")) is not False


def assigner_state(
    reader: OptionReader, topology: str, operation: Operation, table: TableConfig
) -> bool:
    """Whether assigners keep a state. Raises OptionError where a state could be wrong or of no use."""
    if not reader.flag(ASSIGNER_STATE) or not operation.looks_up:
        return False
    if topology != "bloom" or table.index_is_global:
        raise OptionError(
            f"{ASSIGNER_STATE} is true, which needs an index that is not global, and {TOPOLOGY}=bloom; the"
            f" table {table.name} has the index {table.index_type}, and is written by {topology}"
        )
    return True


def sort_mode(reader: OptionReader, topology: str) -> SortMode:
    """The sort order of a bulk_insert. Raises OptionError for a write that does not sort."""
    known = ("NONE", "GLOBAL_SORT", "PARTITION_SORT")
    asked = reader.choice(SORT_MODE, known)
    if asked not in (None, "NONE") and topology != "bulk":
        raise OptionError(
            f"{SORT_MODE} is {asked}, but only a bulk_insert into a table without bucket index sorts"
        )
    return cast(SortMode, asked or "NONE")


def partitions_to_delete(reader: OptionReader, operation: Operation) -> tuple[str, ...]:
    """The partition paths of a delete_partition; blanks are kept, since a path may consist of blanks.
    Raises OptionError if there are none, or if the operation is another one.
    """
    given = reader.given(PARTITIONS_TO_DELETE) is not None
    deletes = operation is Operation.DELETE_PARTITION
    if given and not deletes:
        raise OptionError(
            f"{PARTITIONS_TO_DELETE} is for delete_partition, but the operation is {operation}"
        )
    found = tuple(name for name in reader.pieces(PARTITIONS_TO_DELETE) if name)
    if deletes and not found:
        raise OptionError(
            f"{PARTITIONS_TO_DELETE} is missing; it lists the partition paths to delete"
        )
    return found


def mini_batches(reader: OptionReader, topology: str) -> MiniBatches | None:
    """The buffer limits of `step3`. Raises OptionError if they are set for another topology."""
    given = reader.given(BATCH_MB, BUFFER_MB)
    if topology != "step3":
        # these two run a shorter chain than the one chosen, and still accept its options
        if given and topology not in ("prepped", "nothing"):
            raise OptionError(f"{given} is for {TOPOLOGY}=step3, but the topology is {topology}")
        return None
    return MiniBatches(
        _bytes(reader, BATCH_MB, 256.0),
        _bytes(reader, BUFFER_MB, 1024.0),
    )


def _bytes(reader: OptionReader, option: str, default_mb: float) -> int:
    found = reader.decimal(option, default_mb)
    if not 0 < found < 1 << 20:
        raise OptionError(f"{option} is {found:g}, expected megabytes above 0")
    return max(1, int(found * (1 << 20)))


def file_sizing(reader: OptionReader) -> FileSizing:
    """The sizes of base files, by Hudi's options."""
    default = FileSizing()
    found: dict[str, Any] = {}
    for option, name in SIZING_OPTIONS.items():
        usual = getattr(default, name)
        if isinstance(usual, bool):
            found[name] = reader.flag(option) is not False
        elif isinstance(usual, float):
            found[name] = reader.decimal(option, usual)
        else:
            found[name] = reader.number(option, usual)
    return FileSizing(**found)
