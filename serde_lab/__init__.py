"""serde_lab measures what a SerDe strategy costs in a Spark pipeline that writes real Hudi tables.

`write`, `read`, `write_stream` and `batch_writer` are the Python interface of tables, `results` and
`list_results` that of runs; `python -m serde_lab` is the command line. Importing this package imports
neither Java nor pyspark: the names are looked up when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serde_lab.pipeline.spark.tables import read, write
    from serde_lab.report.notebook import list_results, results
    from serde_lab.streams.query import batch_writer, write_stream

__all__ = ["batch_writer", "list_results", "read", "results", "write", "write_stream"]

_HOMES = {
    "batch_writer": "serde_lab.streams.query",
    "list_results": "serde_lab.report.notebook",
    "read": "serde_lab.pipeline.spark.tables",
    "results": "serde_lab.report.notebook",
    "write": "serde_lab.pipeline.spark.tables",
    "write_stream": "serde_lab.streams.query",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
