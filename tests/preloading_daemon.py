"""The daemon that starts Spark's Python workers, as pyspark has it, but with the lab imported beforehand.

Workers are forked from it. With pyspark's own daemon each worker imports pyarrow, pandas and the lab anew,
which takes more CPU time than the tests' few rows. Every cell of a run has new workers.
"""

from __future__ import annotations

import gc

import pyarrow as pa
from pyspark.daemon import manager

import serde_lab.pipeline.spark.worker
import serde_lab.table.read_plan  # noqa: F401 - for the workers, as the line above

if __name__ == "__main__":
    # pyarrow imports pandas when it meets the first Python list
    pa.array([0])
    gc.freeze()
    manager()
