"""A Hudi table made of parquet files and a few lines of JSON, without any of the lab's own writers.

Copy-on-write, version 6, whose commits are JSON: the smallest table that hudi-rs reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

META = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)


@dataclass(frozen=True)
class HandMadeTable:
    """One base file a partition path; `write` replaces them all in a commit of its own."""

    folder: Path
    partition_fields: tuple[str, ...] = ()

    def create(self) -> HandMadeTable:
        """Lay down `.hoodie`."""
        properties = {
            "hoodie.table.name": "t",
            "hoodie.table.type": "COPY_ON_WRITE",
            "hoodie.table.version": "6",
            "hoodie.timeline.layout.version": "1",
            "hoodie.table.recordkey.fields": "k",
            "hoodie.table.timeline.timezone": "UTC",
        }
        if self.partition_fields:
            properties["hoodie.table.partition.fields"] = ",".join(self.partition_fields)
            properties["hoodie.datasource.write.hive_style_partitioning"] = "true"
        place = self.folder / ".hoodie"
        place.mkdir(parents=True)
        lines = [f"{key}={value}" for key, value in properties.items()]
        (place / "hoodie.properties").write_text("\n".join(lines) + "\n")
        return self

    def write(self, instant: str, rows: dict[str, pa.Table], keys: str = "k") -> None:
        """Write `rows` by partition path, with right meta columns; `keys` names the key column."""
        stats = {}
        for number, (path, data) in enumerate(sorted(rows.items())):
            name = f"{number:08}-0000-4000-8000-000000000000-0_0-0-0_{instant}.parquet"
            count = data.num_rows
            meta = {
                META[0]: [instant] * count,
                META[1]: [f"{instant}_{number}_{row}" for row in range(count)],
                META[2]: data[keys].cast(pa.string()),
                META[3]: [path] * count,
                META[4]: [name] * count,
            }
            table = pa.table(meta)
            for column in data.schema.names:
                table = table.append_column(data.schema.field(column), data[column])
            (self.folder / path).mkdir(exist_ok=True, parents=True)
            pq.write_table(table, self.folder / path / name)
            stats[path] = [
                {
                    "fileId": name.split("_")[0],
                    "path": f"{path}/{name}" if path else name,
                    "prevCommit": "null",
                    "partitionPath": path,
                    "numWrites": count,
                    "fileSizeInBytes": (self.folder / path / name).stat().st_size,
                }
            ]
        commit = {
            "partitionToWriteStats": stats,
            "compacted": False,
            "extraMetadata": {},
            "operationType": "UPSERT",
        }
        (self.folder / ".hoodie" / f"{instant}.commit").write_text(json.dumps(commit))

    def base_file(self, path: str = "") -> Path:
        """The latest base file of a partition path."""
        return max(
            (self.folder / path).glob("*.parquet"), key=lambda file: file.name.split("_")[-1]
        )

    def rewrite(self, change: object, path: str = "") -> None:
        """Replace the latest base file's rows by `change(rows)`, as damage would: no new commit."""
        assert callable(change)
        file = self.base_file(path)
        pq.write_table(change(pq.read_table(file)), file)
