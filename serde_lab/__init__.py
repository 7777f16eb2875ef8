"""serde_lab: what a SerDe strategy costs a Spark write pipeline, on real Hudi tables, checked.

`write` and `read` are the Python interface; `python -m serde_lab` is the command line. Importing this
package imports neither Java nor pyspark.
"""

from __future__ import annotations
