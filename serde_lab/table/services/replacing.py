"""Replacing file groups: which of them an insert_overwrite or a delete_partition replaces.

The functions are pure, given a view. Source: SparkInsertOverwriteCommitActionExecutor,
SparkInsertOverwriteTableCommitActionExecutor, SparkDeletePartitionCommitActionExecutor, and
HoodieSparkSqlWriter for wildcards.

A replacecommit goes through the same states as a commit, on both table types. Completed, it is a
`CommitMetadata` with `replaced_file_ids`; from then on readers ignore these file groups for good, except in
reads as of an earlier time. Their files stay until they are cleaned, and the instant stays on the active
timeline until then. A replaced file id must not be used again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from serde_lab.avro.codec import hudi_schema, write_single
from serde_lab.errors import OptionError
from serde_lab.table.files.file_system_view import FileSystemView

REPLACE_COMMIT = "replacecommit"

Replaced = dict[str, tuple[str, ...]]
"""File ids by partition path, as in `CommitMetadata.replaced_file_ids`."""


def replaced_by_insert_overwrite(view: FileSystemView, partitions: Iterable[str]) -> Replaced:
    """All file groups of the partitions that the write touches; `view` is from before the write.

    New partitions are included, with nothing to replace, as in Hudi.
    """
    paths = sorted(set(partitions))
    return {path: tuple(s.file_id for s in view.latest_file_slices(path)) for path in paths}


def replaced_by_insert_overwrite_table(view: FileSystemView) -> Replaced:
    return replaced_by_insert_overwrite(view, view.partitions)


def replaced_by_delete_partition(view: FileSystemView, partitions: Iterable[str]) -> Replaced:
    """All file groups of the partitions; `*` in a path stands for any text.

    A plain path of no partition replaces nothing. Raises OptionError if no partition is given, for a wildcard
    that matches none, and for `%2A` in a path of no partition: Apache Hudi reads it as `*`
    (HoodieSparkSqlWriter.resolvePartitionWildcards), so that deleting the folder `%2A` twice would delete all
    partitions. In a table that escapes its paths, it is the folder of a star.
    """
    wanted = tuple(partitions)
    if not wanted:
        raise OptionError(
            "delete_partition names no partition",
            hint="hoodie.datasource.write.partitions.to.delete names them",
        )
    paths: set[str] = set()
    for pattern in wanted:
        if "*" not in pattern:
            is_folder = view.config.url_encode or pattern in view.partitions
            if "%2A" in pattern and not is_folder:
                raise OptionError(
                    f"hoodie.datasource.write.partitions.to.delete has {pattern!r}, and no partition has this"
                    " path; Apache Hudi would read %2A as *",
                    hint="write * if that is meant",
                )
            paths.add(pattern)
            continue
        form = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        found = [path for path in view.partitions if form.fullmatch(path)]
        if not found:
            raise OptionError(
                f"hoodie.datasource.write.partitions.to.delete has {pattern!r}, which matches no partition"
                " of the table"
            )
        paths.update(found)
    return replaced_by_insert_overwrite(view, paths)


def requested_content(operation: str, clustering_plan: Mapping[str, Any] | None = None) -> bytes:
    """The content of a replacecommit's requested file; `clustering_plan`: of a clustering, in Hudi's form."""
    return write_single(
        hudi_schema("HoodieRequestedReplaceMetadata"),
        {
            "operationType": operation.upper(),
            "clusteringPlan": clustering_plan,
            "extraMetadata": {},
            "version": 1,
        },
    )
