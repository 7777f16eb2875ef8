"""`.hoodie_partition_metadata`: the file that makes a folder a partition.

Java readers list partitions by it: without it they see no rows and report nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime

from serde_lab.table.files.file_names import in_partition
from serde_lab.table.properties import format_properties
from serde_lab.table.storage.storage import Storage

FILE_NAME = ".hoodie_partition_metadata"


def create_partition_metadata(storage: Storage, partition_path: str, instant: str) -> None:
    """Make the folder a partition, first written by `instant`; no effect if it is one already."""
    path = in_partition(partition_path, FILE_NAME)
    if storage.exists(path):
        return
    depth = len(partition_path.split("/")) if partition_path else 0
    text = format_properties(
        {"commitTime": instant, "partitionDepth": str(depth)},
        ("partition metadata", f"{datetime.now(UTC):%a %b %d %H:%M:%S} UTC {datetime.now(UTC):%Y}"),
    )
    storage.put_new(path, text.encode())
