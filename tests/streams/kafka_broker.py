"""Runs one Apache Kafka broker in KRaft mode on the loopback interface, for tests.

The process is broker and controller at once. It ends with the process that started it, whatever ends that.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from serde_lab.errors import SetupError
from serde_lab.lab.session.session import find_java

HOST = "127.0.0.1"

_ATTEMPTS = 3
_PATIENCE_S = 120
_PAUSE_S = 0.1
_END_S = 30
_LOG_LEVELS = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %c: %m%n%throwable
"""
_BESIDE_US = 'exec 3<&0; (cat <&3 >/dev/null; kill $$) & exec "$@" </dev/null 3<&-'
"""Ends the program when the pipe from this process is closed, be it because this process was killed."""
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Kafka's request ApiVersions, version 0: size, key, version, correlation id, no client id."""


class KafkaBroker:
    """A broker with an empty `folder`, which holds its topics; a context manager that starts and ends it.

    `jars`: `serde_lab.lab.jars.manifest.KAFKA_BROKER`, as files. Topics are not created by themselves.
    """

    def __init__(self, jars: Sequence[Path], folder: Path, heap: str = "256m") -> None:
        self._jars, self._folder, self._heap = jars, folder, heap
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """Kafka's option `bootstrap.servers`."""
        return f"{HOST}:{self._port}"

    def __enter__(self) -> Self:
        """Start it, and wait until it answers. Raises SetupError with what it said if it does not."""
        for attempt in range(1, _ATTEMPTS + 1):
            self._start()
            said = self._wait()
            if said is None:
                return self
            self._end()
            # somebody else took the port in the meantime
            if attempt == _ATTEMPTS or "Address already in use" not in said:
                raise SetupError(f"Apache Kafka's broker did not start: {said}")
        raise AssertionError

    def __exit__(self, *_: object) -> None:
        self._end()

    def _start(self) -> None:
        self._port, controller = free_ports(2)
        topics = self._folder / "topics"
        topics.mkdir(parents=True, exist_ok=True)
        _write_properties(
            topics / "meta.properties",
            {"version": "1", "cluster.id": _id(), "node.id": "1", "directory.id": _id()},
        )
        listeners = f"PLAINTEXT://{HOST}:{self._port},CONTROLLER://{HOST}:{controller}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "log.dirs": str(topics),
            "auto.create.topics.enable": "false",
            # records may have any time: otherwise those of more than a week ago are deleted
            "log.retention.ms": "-1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        _write_properties(self._folder / "server.properties", properties)
        levels = self._folder / "log4j2.properties"
        levels.write_text(_LOG_LEVELS)
        command = [
            str(find_java().home / "bin" / "java"),
            f"-Xmx{self._heap}",
            # one client: less time to start matters more than peak throughput
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            f"-Dlog4j2.configurationFile={levels.as_uri()}",
            *("-cp", os.pathsep.join(map(str, self._jars))),
            *("kafka.Kafka", str(self._folder / "server.properties")),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _BESIDE_US, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    @property
    def _log(self) -> Path:
        return self._folder / "broker.log"

    def _wait(self) -> str | None:
        """None once it answers, else what it said last."""
        assert self._process is not None
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            if _answers(self._port):
                return None
            if self._process.poll() is not None:
                lines = self._log.read_text(errors="replace").strip().splitlines()
                told = [line for line in lines if "Exception" in line or line.startswith("Error")]
                return (told or lines or [f"status {self._process.returncode}"])[-1]
            time.sleep(_PAUSE_S)
        return f"no answer for {_PATIENCE_S} s"

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _answers(port: int) -> bool:
    """Whether the broker takes requests."""
    with suppress(OSError), socket.create_connection((HOST, port), timeout=5) as connection:
        connection.sendall(_API_VERSIONS)
        return len(connection.recv(8)) > 0
    return False


def _id() -> str:
    """A new id in Kafka's form: 16 bytes in base 64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _write_properties(file: Path, properties: Mapping[str, str]) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
