"""A Spark standalone cluster on this machine: a master and its workers, from pyspark's own jars.

Owns the processes, on ports that the system picks, and their end. Must not know what runs on them.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyspark

from serde_lab.lab.session.session import find_java
from tests.short_lived import SHORT_LIVED

HOST = "127.0.0.1"
_PATIENCE_S = 900
"""No test waits so long for anything but a daemon that will never answer."""
_GRACE_S = 60
_DEPLOY = "org.apache.spark.deploy"

CONF = {
    # the driver is reached where the cluster is, whatever this machine is called
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    # the tests are not among what executors are sent
    "spark.python.daemon.module": "pyspark.daemon",
}
"""What a session on the cluster needs besides its master."""


class Daemon:
    """One process of the cluster; what it logs is read on, so that it never waits for a reader."""

    def __init__(self, kind: str, host: str, arguments: Sequence[str], ready: str) -> None:
        self.lines: list[str] = []
        self._ready = re.compile(ready)
        self._said = threading.Event()
        self._match: re.Match[str] | None = None
        java, home = find_java().home, Path(pyspark.__file__).parent
        self.process = subprocess.Popen(
            [
                *(str(java / "bin" / "java"), "-Xmx256m", *SHORT_LIVED.split()),
                *("-cp", str(home / "jars" / "*"), f"{_DEPLOY}.{kind}"),
                *("--host", host, "--port", "0", "--webui-port", "0"),
                *arguments,
            ],
            env=_environment(java, home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    def _read(self, log: IO[str]) -> None:
        for line in log:
            self.lines.append(line)
            self._match = self._match or self._ready.search(line)
            if self._match:
                self._said.set()
        self._said.set()

    def wait_until_ready(self) -> str:
        """What it said when it was ready."""
        self._said.wait(_PATIENCE_S)
        assert self._match is not None, "".join(self.lines)
        return self._match.group(1)

    def end(self) -> None:
        """By its own process id; a worker ends its executors then."""
        for stop in (self.process.terminate, self.process.kill):
            with suppress(subprocess.TimeoutExpired):
                stop()
                self.process.wait(_GRACE_S)
                break
        self._reader.join(_GRACE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


@dataclass
class SparkCluster:
    """A running cluster: `url` is what a session takes as its master."""

    url: str
    folder: Path
    workers: list[Daemon] = field(default_factory=list)

    def add_worker(self, cores: int = 1) -> Daemon:
        # each on a host of its own, since Spark gives a task no twin on the host where it runs
        worker = Daemon(
            "worker.Worker",
            f"127.0.0.{len(self.workers) + 1}",
            [
                *("--cores", str(cores), "--memory", "1g"),
                *("--work-dir", str(self.folder / f"worker-{len(self.workers)}"), self.url),
            ],
            r"Successfully registered with master (\S+)",
        )
        self.workers.append(worker)
        return worker


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A master and `workers` workers of one core each, until the end of the block."""
    master = Daemon("master.Master", HOST, (), r"Starting Spark master at (spark://\S+)")
    cluster = None
    try:
        cluster = SparkCluster(master.wait_until_ready(), folder)
        for worker in [cluster.add_worker() for _ in range(workers)]:
            worker.wait_until_ready()
        yield cluster
    finally:
        for daemon in [*(cluster.workers if cluster else ()), master]:
            daemon.end()


def _environment(java: Path, home: Path) -> dict[str, str]:
    """That of a machine with Java and Spark alone: nothing of it leads to the packages here."""
    return {
        "PATH": os.defpath,
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(home),
        # else a worker looks for the build folders of a checkout
        "SPARK_SCALA_VERSION": "2.12",
        "SPARK_LOCAL_IP": HOST,
    }
