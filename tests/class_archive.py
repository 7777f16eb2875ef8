"""An archive of Spark's classes, which the tests' JVMs map into memory instead of reading, parsing and
verifying them from the jars: a session then starts with a third less CPU time.

`python -m tests.class_archive` makes it (Java's class data sharing). The JVM checks it against Java and
the jars and goes on without it if they differ, so that a missing or an old archive costs time only.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from serde_lab.errors import SetupError
from serde_lab.lab.session.session import find_java

_PYSPARK = Path(str(getattr(find_spec("pyspark"), "origin", ""))).parent
_CLASS_PATH = f"{_PYSPARK / 'conf'}:{_PYSPARK / 'jars'}/*"
"""As Spark's launcher writes it; an archive holds for one class path."""
_ONE_JOB = """
from serde_lab.lab.session.session import SessionSettings, start_session, stop_session
spark = start_session(SessionSettings(cores=1, driver_memory="1g"))
spark.range(10).repartition(2).mapInArrow(lambda batches: batches, "id long").count()
stop_session(spark)
"""


def archive_path() -> Path:
    """Where the archive for this Java and this pyspark lies, whether it has been made or not."""
    java = find_java()
    key = f"{java.home} {java.version} {_PYSPARK} {version('pyspark')}"
    name = f"spark-classes-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
    return Path(__file__).parents[1] / ".cache" / name


def archive_options() -> str:
    """Options with which a JVM uses the archive, without a word if it does not fit; "" if there is none."""
    path = archive_path()
    return f' "-XX:SharedArchiveFile={path}" -Xlog:cds=off' if path.exists() else ""


def make_archive() -> Path:
    """Make the archive, unless it is there: one small Spark job names the classes, Java stores them."""
    path = archive_path()
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        classes, archive = f"{folder}/classes", f"{folder}/archive"
        listing = {"SPARK_SUBMIT_OPTS": f'-Xshare:off "-XX:DumpLoadedClassList={classes}"'}
        quiet = {"check": True, "capture_output": True}
        subprocess.run([sys.executable, "-c", _ONE_JOB], env=os.environ | listing, **quiet)
        dump = [
            "-Xshare:dump",
            f"-XX:SharedClassListFile={classes}",
            f"-XX:SharedArchiveFile={archive}",
        ]
        java = find_java().home / "bin" / "java"
        subprocess.run([java, *dump, "-XX:+UseSerialGC", "-cp", _CLASS_PATH], **quiet)
        Path(archive).rename(path)
    return path


if __name__ == "__main__":
    try:
        make_archive()
    except (SetupError, subprocess.CalledProcessError) as exc:
        sys.stderr.write(f"no archive of Spark's classes: sessions start more slowly ({exc})\n")
