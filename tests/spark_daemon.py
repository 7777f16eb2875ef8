"""The process that forks Spark's Python workers, with the lab imported before it forks.

pyspark's own daemon imports almost nothing, so each worker of each cell imports pyarrow, pandas, numpy and
the lab anew. Spark finds this module by an option in `tests/short_lived.py`.
"""

from __future__ import annotations

import pyspark.daemon

import serde_lab.pipeline.spark.worker
import serde_lab.pipeline.warm_up  # noqa: F401 - for the workers

if __name__ == "__main__":
    pyspark.daemon.manager()
