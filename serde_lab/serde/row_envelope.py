"""Which records have a row: an index record has none.

Owns that one rule, for strategies that leave the row of an index record out of their frames. Must not
know strategies.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD


def rows_present(batch: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
    """Which records of `batch` have a row; None if all have.

    Raises DataError naming the column where an index record has a value.
    """
    is_index = batch.column(IS_INDEX_RECORD)
    if not pc.any(is_index).as_py():
        return None
    for name in batch.schema.names[len(ENVELOPE) :]:
        column = batch.column(name)
        if column.null_count < len(column) and pc.any(pc.and_(is_index, column.is_valid())).as_py():
            raise DataError(f"column {name!r} of an index record has a value, expected null")
    present: npt.NDArray[np.bool_] = ~is_index.to_numpy(zero_copy_only=False)
    return present
