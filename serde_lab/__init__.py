"""serde_lab measures what a SerDe strategy costs in a Spark pipeline that writes real Hudi tables.

`write` and `read` are the Python interface; `python -m serde_lab` is the command line. Importing this
package imports neither Java nor pyspark: the two names are looked up when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serde_lab.pipeline.spark.tables import read, write

__all__ = ["read", "write"]


def __getattr__(name: str) -> object:
    if name == "read":
        from serde_lab.pipeline.spark.tables import read

        return read
    if name == "write":
        from serde_lab.pipeline.spark.tables import write

        return write
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
