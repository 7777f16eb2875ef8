"""Replacing file groups: which of them an insert_overwrite or a delete_partition takes away.

Owns these sets, as pure functions of a view, and the content of a replacecommit's requested file; must
not know who writes the rows that come instead. Source: SparkInsertOverwriteCommitActionExecutor,
SparkInsertOverwriteTableCommitActionExecutor, SparkDeletePartitionCommitActionExecutor, and
HoodieSparkSqlWriter for wildcards.

A replacecommit goes through the same states as a commit, on both table types. Completed, it is a
`CommitMetadata` with `replaced_file_ids`; from then on readers leave these file groups out, for good,
while reads of the time before still see them. Their files stay until cleaning takes them, and the
instant stays on the active timeline until then. A file id that was replaced must not be used again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from serde_lab.avro.container import hudi_schema, write_single
from serde_lab.errors import OptionError
from serde_lab.table.files.file_system_view import FileSystemView

REPLACE_COMMIT = "replacecommit"

Replaced = dict[str, tuple[str, ...]]
"""File ids by partition path, as `CommitMetadata.replaced_file_ids` takes them."""


def replaced_by_insert_overwrite(view: FileSystemView, partitions: Iterable[str]) -> Replaced:
    """All file groups of the partitions that the write touches; `view` is of before the write.

    A partition that is new is named too, with nothing to replace, as Hudi names it.
    """
    return {path: _file_ids(view, path) for path in sorted(set(partitions))}


def replaced_by_insert_overwrite_table(view: FileSystemView) -> Replaced:
    """All file groups of the table."""
    return replaced_by_insert_overwrite(view, view.partitions)


def replaced_by_delete_partition(view: FileSystemView, partitions: Iterable[str]) -> Replaced:
    """All file groups of the partitions, of which each may hold `*` for any text.

    Source: HoodieSparkSqlWriter.resolvePartitionWildcards, to which `%2A` means the same where there is no
    `*`. Here that is so only if no partition has this very path: a table that escapes its paths may have
    one. A plain path of no partition replaces nothing. Raises OptionError for no partition at all, and
    for a wildcard that fits none.
    """
    wanted = tuple(partitions)
    if not wanted:
        raise OptionError(
            "delete_partition is told no partition",
            hint="hoodie.datasource.write.partitions.to.delete names them",
        )
    paths: set[str] = set()
    for pattern in wanted:
        wildcard = "*" if "*" in pattern else "%2A"
        if wildcard not in pattern or (wildcard == "%2A" and pattern in view.partitions):
            paths.add(pattern)
            continue
        form = re.compile(".*".join(map(re.escape, pattern.split(wildcard))))
        found = [path for path in view.partitions if form.fullmatch(path)]
        if not found:
            raise OptionError(
                f"hoodie.datasource.write.partitions.to.delete has {pattern!r}, which fits no partition"
                " of the table"
            )
        paths.update(found)
    return replaced_by_insert_overwrite(view, paths)


def requested_content(operation: str) -> bytes:
    """What the requested file of a replacecommit holds: the operation in Hudi's words, and no plan."""
    return write_single(
        hudi_schema("HoodieRequestedReplaceMetadata"),
        {
            "operationType": operation.upper(),
            "clusteringPlan": None,
            "extraMetadata": {},
            "version": 1,
        },
    )


def _file_ids(view: FileSystemView, partition_path: str) -> tuple[str, ...]:
    return tuple(s.file_id for s in view.latest_file_slices(partition_path))
