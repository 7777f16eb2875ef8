"""Adds to the rows of an upsert_prepped the files in which their keys are stored.

A user of upsert_prepped reads the table before the write. The lab does so before each cell's clock
starts, since file names differ from table to table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError
from serde_lab.lab.checks.own_reader import OwnReader
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.table.files.meta_columns import FILE_NAME

_ROW = "_row"


def with_places(commit: CommitInput, table: Path, key: Sequence[str], folder: Path) -> CommitInput:
    """`commit` with its rows copied into `folder`, each with the name of the file that holds its key.

    `key`: the columns that identify a stored row, including those of the partition. Raises LabError for
    rows that are not stored.
    """
    batches = (batch.select([*key, FILE_NAME]) for batch in OwnReader(str(table)).batches())
    stored = pa.Table.from_batches(batches)
    folder.mkdir(parents=True)
    files = []
    for file in commit.files:
        rows = pq.read_table(file)
        numbered = rows.select(key).append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
        joined = numbered.join(stored, list(key), join_type="inner").sort_by(_ROW)
        if len(joined) != len(rows):
            raise LabError(
                f"{commit.name}: {len(rows) - len(joined):,} of {len(rows):,} rows of {file.name} are not"
                " stored, and an upsert_prepped is for rows that are"
            )
        names = joined.column(FILE_NAME).combine_chunks().cast(pa.string())
        files.append(folder / file.name)
        pq.write_table(rows.append_column(FILE_NAME, names), files[-1])
    return replace(commit, folder=folder, files=tuple(files))
