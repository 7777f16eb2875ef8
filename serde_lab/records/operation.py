"""Defines the operations of a write, under Hudi's own names, and those that read or compact a table."""

from __future__ import annotations

from enum import StrEnum


class Operation(StrEnum):
    """The values of `hoodie.datasource.write.operation` that the lab supports."""

    UPSERT = "upsert"
    UPSERT_PREPPED = "upsert_prepped"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"

    @property
    def looks_up(self) -> bool:
        """Whether records are looked up by key among the stored ones."""
        return self in (Operation.UPSERT, Operation.DELETE)

    @property
    def merges(self) -> bool:
        """Whether one row per key is kept, of the write's rows and, if it looks up keys, the stored one."""
        return self.overwrites or self in (Operation.UPSERT, Operation.UPSERT_PREPPED)

    @property
    def overwrites(self) -> bool:
        """Whether its rows take the place of a partition's, or of the table's."""
        return self in (Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE)

    @property
    def replaces(self) -> bool:
        """Whether the write replaces existing file groups, by a replacecommit."""
        return self.overwrites or self is Operation.DELETE_PARTITION


class TableOperation(StrEnum):
    """What a scenario times besides writes; it takes no rows."""

    READ = "read"
    INCREMENTAL = "incremental"
    COMPACT = "compact"

    @property
    def reads(self) -> bool:
        """Whether it answers with rows."""
        return self is not TableOperation.COMPACT


TABLE_OPERATIONS: tuple[str, ...] = tuple(TableOperation)
