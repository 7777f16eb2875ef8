"""Checks that the Python workers of a Spark session can run the pipeline.

Spark starts the interpreter that PYSPARK_PYTHON names, or `python3`, whichever one runs the driver.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serde_lab.errors import SetupError
from serde_lab.pipeline.spark.exchange import reason_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_checked: set[tuple[str, str]] = set()
_OWN_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
_PROBE = f"""
import importlib.util, sys
version = "%d.%d" % sys.version_info[:2]
missing = [name for name in ("pyarrow", "serde_lab") if importlib.util.find_spec(name) is None]
if version != "{_OWN_VERSION}":
    said = "which is Python " + version
else:
    said = "which has no " + " and no ".join(missing) if missing else ""
"""
_PATIENCE_S = 120


def check_workers(spark: SparkSession) -> None:
    """Raise SetupError if the session's workers run a Python that lacks what the pipeline needs.

    Workers with the driver's own interpreter pass without a check. Any other is probed once per session:
    directly on this machine, or by a one-task job on a cluster.
    """
    context = spark.sparkContext
    if _is_own(context.pythonExec):
        return
    session = (context.applicationId, context.pythonExec)
    if session in _checked:
        return
    problem = _problem_here(context) if _is_local(context) else _problem_there(context)
    if problem:
        raise SetupError(
            f"the workers of this Spark session run {context.pythonExec}, {problem}, and this program runs"
            f" {sys.executable} (Python {_OWN_VERSION})",
            hint="set PYSPARK_PYTHON to an interpreter with the same packages before the session starts,"
            f" on one machine PYSPARK_PYTHON={sys.executable}",
        )
    _checked.add(session)


def _is_own(executable: str) -> bool:
    """Whether `executable` is this interpreter; a link to it in another folder sees other packages."""
    found = shutil.which(executable)
    if found is None:
        return False
    here = Path(sys.executable)
    same_folder = Path(found).parent.resolve() == here.parent.resolve()
    return same_folder and Path(found).resolve() == here.resolve()


def _is_local(context: SparkContext) -> bool:
    return (context.master or "").startswith("local")


def _problem_here(context: SparkContext) -> str:
    """What is wrong with the workers' Python on this machine; "" if nothing is."""
    # as Spark starts its workers: found on the driver's path, in Spark's environment
    environment = {**os.environ, **context.environment}
    command = [context.pythonExec, "-c", f"{_PROBE}\nprint(said)"]
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"which cannot be started ({getattr(exc, 'strerror', None) or 'no answer'})"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason was given"]
        return f"which cannot be started ({lines[-1]})"
    return done.stdout.strip()


def _problem_there(context: SparkContext) -> str:
    """The same for a cluster, probed by a job."""
    code = _PROBE

    def look(_: int) -> str:
        found: dict[str, Any] = {}
        exec(code, found)
        return str(found["said"])

    try:
        (said,) = context.parallelize([0], 1).map(look).collect()
    except Exception as exc:  # a failed start raises many kinds of errors
        return f"which cannot be started ({reason_of(str(exc))})"
    return str(said)
